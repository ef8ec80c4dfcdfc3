//! Writes files of PyTorch, as tests need them.

/// What writes pickles, one operation after another.
#[derive(Clone, Default)]
pub struct Pickle(pub Vec<u8>);

impl Pickle {
    pub fn new() -> Self {
        Pickle(b"\x80\x02".to_vec())
    }

    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    pub fn text(self, text: &str) -> Self {
        self.raw(b"X").raw(&(text.len() as u32).to_le_bytes()).raw(text.as_bytes())
    }

    pub fn int(self, int: i64) -> Self {
        self.raw(b"\x8a\x08").raw(&int.to_le_bytes())
    }

    pub fn tuple(self, ints: &[i64]) -> Self {
        ints.iter().fold(self.raw(b"("), |pickle, int| pickle.int(*int)).raw(b"t")
    }

    pub fn tensor(self, tensor: &Tensor) -> Self {
        self.raw(b"ctorch._utils\n_rebuild_tensor_v2\n((")
            .text("storage")
            .raw(format!("ctorch\n{}\n", tensor.storage).as_bytes())
            .text(tensor.key)
            .text("cuda:0")
            .int(tensor.len)
            .raw(b"tQ")
            .int(tensor.offset)
            .tuple(tensor.shape)
            .tuple(tensor.strides)
            .raw(b"\x89ccollections\nOrderedDict\n)RtR")
    }
}

#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    pub storage: &'a str,
    pub key: &'a str,
    pub len: i64,
    pub offset: i64,
    pub shape: &'a [i64],
    pub strides: &'a [i64],
}

pub fn archive(pickle: &[u8], storages: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut entries = vec![("model/data.pkl".to_string(), pickle.to_vec(), 0)];
    entries.push(("model/byteorder".into(), b"little".to_vec(), 0));
    entries.extend(storages.iter().map(|(key, bytes)| (format!("model/data/{key}"), bytes.clone(), 0)));
    zip(&entries)
}

/// A zip archive from names, bytes and methods (0: stored).
pub fn zip(entries: &[(String, Vec<u8>, u16)]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes, method) in entries {
        let mut common = vec![20, 0, 0, 0];
        common.extend(method.to_le_bytes());
        common.extend([0; 4]);
        common.extend(crc(bytes).to_le_bytes());
        common.extend([(bytes.len() as u32).to_le_bytes(); 2].concat());
        common.extend((name.len() as u16).to_le_bytes());
        common.extend([0; 2]);
        directory.extend([b"PK\x01\x02\x14\x00".as_slice(), &common, &[0; 10]].concat());
        directory.extend((file.len() as u32).to_le_bytes());
        directory.extend(name.as_bytes());
        file.extend([b"PK\x03\x04".as_slice(), &common, name.as_bytes(), bytes].concat());
    }
    let mut end = b"PK\x05\x06\0\0\0\0".to_vec();
    end.extend([(entries.len() as u16).to_le_bytes(); 2].concat());
    end.extend((directory.len() as u32).to_le_bytes());
    end.extend((file.len() as u32).to_le_bytes());
    end.extend([0; 2]);
    [file, directory, end].concat()
}

/// The checksum of zip, bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= *byte as u32;
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}
