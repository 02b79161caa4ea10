// SPDX-License-Identifier: GPL-2.0-or-later
//! Inputs of a target in a folder, so that fuzzing goes on where it ended.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

/// The folder, and which of its files are to be run yet.
#[derive(Debug)]
pub struct Corpus {
    folder: PathBuf,
    left: Vec<PathBuf>,
}

impl Corpus {
    /// Opens the folder; makes it, if it is not there.
    pub fn open(folder: &Path) -> Self {
        if let Err(e) = fs::create_dir_all(folder) {
            println!("cannot keep inputs in {}: {e}", folder.display());
        }
        let mut files: Vec<_> = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|file| (file.metadata().map_or(0, |m| m.len()), file.path()))
            .collect();
        // Small ones first: a long one stays only for what they do not reach.
        files.sort_by(|a, b| b.cmp(a));
        Corpus {
            folder: folder.to_owned(),
            left: files.into_iter().map(|file| file.1).collect(),
        }
    }

    /// The next file and what it has.
    pub fn read_next(&mut self) -> Option<(PathBuf, Vec<u8>)> {
        while let Some(path) = self.left.pop() {
            match fs::read(&path) {
                Ok(input) => return Some((path, input)),
                Err(e) => println!("{}: {e}", path.display()),
            }
        }
        None
    }

    /// Keeps an input.
    pub fn keep(&self, input: &[u8]) {
        let mut hasher = DefaultHasher::new();
        input.hash(&mut hasher);
        let path = self.folder.join(format!("{:016x}", hasher.finish()));
        if let Err(e) = fs::write(&path, input) {
            println!("cannot write {}: {e}", path.display());
        }
    }

    /// Removes a file whose input leads to nothing that others do not lead to.
    pub fn forget(&self, path: &Path) {
        if let Err(e) = fs::remove_file(path) {
            println!("cannot remove {}: {e}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back_small_ones_first() {
        let folder = std::env::temp_dir().join(format!("ochre-corpus-{}", std::process::id()));
        let corpus = Corpus::open(&folder);
        for input in [&b"longer"[..], b"short", b"", b"short"] {
            corpus.keep(input);
        }
        let mut again = Corpus::open(&folder);
        let mut inputs = Vec::new();
        while let Some((path, input)) = again.read_next() {
            inputs.push(input);
            again.forget(&path);
        }
        assert_eq!(inputs, [&b""[..], b"short", b"longer"]);
        assert!(Corpus::open(&folder).read_next().is_none());
        fs::remove_dir(&folder).unwrap();
    }
}
