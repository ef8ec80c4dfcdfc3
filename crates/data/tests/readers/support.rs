//! Files of the fixture folder, and MATLAB 5 files as these tests need them.

use std::io::Write;
use std::path::PathBuf;

pub fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// One file of every format and layout the readers know.
pub const EVERY_FORMAT: [&str; 18] = [
    "mat/burgers_v5.mat",
    "mat/burgers_v5_compressed.mat",
    "mat/darcy_v5_narrow.mat",
    "mat/darcy_v5_narrow_uncompressed.mat",
    "mat/burgers_v73.mat",
    "mat/burgers_v73_chunked.mat",
    "mat/darcy_v73_chunked.mat",
    "written/classes.mat",
    "written/classes_compressed.mat",
    "written/types.h5",
    "written/latest.h5",
    "links/circle.h5",
    "written/types.npz",
    "written/compressed.npz",
    "written/version3.npy",
    "written/types.safetensors",
    "torch/data.pt",
    "torch/checkpoint.pt",
];

/// A MATLAB 5 file, element by element.
pub struct Mat5 {
    big: bool,
    pub bytes: Vec<u8>,
}

impl Mat5 {
    pub fn new(big: bool) -> Self {
        let mut bytes = vec![b' '; 124];
        bytes.extend(if big { *b"\x01\x00MI" } else { *b"\x00\x01IM" });
        Self { big, bytes }
    }

    pub fn word(&self, value: u32) -> [u8; 4] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    /// Tag, bytes and padding.
    pub fn element(&self, kind: u32, bytes: &[u8]) -> Vec<u8> {
        let mut element = [self.word(kind), self.word(bytes.len() as u32)].concat();
        element.extend(bytes);
        element.resize(element.len().next_multiple_of(8), 0);
        element
    }

    /// A matrix element of a class with a shape, whose values are stored as `values`, an element.
    pub fn matrix(&self, name: &str, class: u32, shape: &[i32], values: &[u8]) -> Vec<u8> {
        let flags = [self.word(class), self.word(0)].concat();
        let shape: Vec<u8> = shape.iter().flat_map(|n| self.word(*n as u32)).collect();
        let mut parts = self.element(6, &flags);
        parts.extend(self.element(5, &shape));
        parts.extend(self.element(1, name.as_bytes()));
        parts.extend(values);
        self.element(14, &parts)
    }

    pub fn push(mut self, element: &[u8]) -> Self {
        self.bytes.extend(element);
        self
    }

    /// The element as a zlib stream inside another.
    pub fn push_compressed(mut self, element: &[u8]) -> Self {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(element).unwrap();
        let stream = encoder.finish().unwrap();
        self.bytes.extend([self.word(15), self.word(stream.len() as u32)].concat());
        self.bytes.extend(stream);
        self
    }
}
