#![no_main]
//! Pickles in an archive whose checksums agree, beside two storages.

use std::io::{Cursor, Write};

use libfuzzer_sys::fuzz_target;
use zip::write::SimpleFileOptions;

fuzz_target!(|pickle: &[u8]| {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, bytes) in [("x/data.pkl", pickle), ("x/data/0", &[0; 96]), ("x/data/1", &[1; 48])] {
        writer.start_file(name, options).expect("a name that is free");
        writer.write_all(bytes).expect("memory takes all bytes");
    }
    let bytes = writer.finish().expect("memory takes all bytes").into_inner();
    galerkin_fuzz::exercise("x.pt", &bytes);
    galerkin_fuzz::exercise_state_dict(&bytes);
});
