// SPDX-License-Identifier: GPL-2.0-or-later
//! The stream between the lab runner and its guests: frames are found however it is cut and
//! whatever stands between them.

use ochre_lab::proto::{
    write_frame, Bytes as Blob, Command, Decoder, Exit, Record, Report, Request, Size, Stream,
};

use crate::bytes::Bytes;
use crate::note;

pub(super) fn run(input: &[u8]) {
    let mut input = Bytes::new(input);
    let piece = usize::from(input.u8()) + 1;
    let stream = input.rest();
    let mut guest = Decoder::default();
    let mut host = Decoder::default();
    let (mut requests, mut reports) = (0, 0);
    for bytes in stream.chunks(piece) {
        guest.push(bytes);
        host.push(bytes);
        while let Some(request) = guest.take::<Request>() {
            requests += 1;
            note(std::mem::discriminant(&request));
        }
        while let Some(report) = host.take::<Report>() {
            reports += 1;
            note(std::mem::discriminant(&report));
            let mut frame = Vec::new();
            if write_frame(&mut frame, &report).is_ok() {
                let mut again = Decoder::default();
                again.push(&frame);
                assert!(again.take::<Report>().is_some(), "what is written is read");
            }
        }
    }
    note((requests, reports, piece.min(8)));
    // A good frame is found behind anything in which no other begins.
    let frame = reports_of_every_kind().remove(0);
    if !stream.windows(4).any(|w| w == b"OCHR") {
        host.push(&frame);
        assert!(host.take::<Report>().is_some(), "the next frame is found");
    }
}

fn reports_of_every_kind() -> Vec<Vec<u8>> {
    let frame = |report: Report| {
        let mut frame = Vec::new();
        write_frame(&mut frame, &report).expect("short enough");
        frame
    };
    vec![
        frame(Report::Output {
            id: 1,
            stream: Stream::Out,
            data: Blob(b"output".to_vec()),
        }),
        frame(Report::Ready {
            kernel: "7.3".into(),
            uptime_ms: 1,
        }),
        frame(Report::Exited {
            id: 1,
            exit: Exit::Signal(9),
        }),
        frame(Report::Failed {
            id: 1,
            error: "none".into(),
        }),
        frame(Report::Dmesg {
            records: vec![Record {
                level: 4,
                usec: 5,
                text: "text".into(),
            }],
        }),
    ]
}

fn requests_of_every_kind() -> Vec<Vec<u8>> {
    let frame = |request: Request| {
        let mut frame = Vec::new();
        write_frame(&mut frame, &request).expect("short enough");
        frame
    };
    vec![
        frame(Request::Exec {
            id: 1,
            command: Command {
                argv: vec!["true".into()],
                tty: Some(Size { rows: 24, cols: 80 }),
                ..Command::default()
            },
        }),
        frame(Request::Stdin {
            id: 1,
            data: Blob(Vec::new()),
        }),
        frame(Request::Kill { id: 1, signal: 9 }),
        frame(Request::Poweroff),
    ]
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut frames = requests_of_every_kind();
    frames.extend(reports_of_every_kind());
    frames.push(frames.concat());
    frames
        .into_iter()
        .map(|frame| {
            let mut seed = vec![63];
            seed.extend(frame);
            seed
        })
        .collect()
}
