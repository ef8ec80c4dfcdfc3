//! Variables block by block: in the order of the file, and no more of them than the file makes likely.

use galerkin_data::Error;
use galerkin_data::io::{self, File, Limits};

use crate::support::{Mat5, fixture};

#[test]
fn variables_say_in_which_order_their_values_come() {
    let order =
        |file: &str, name: &str| io::open(fixture(file)).unwrap().variable(name).unwrap().order.clone();
    assert_eq!(order("mat/darcy_v5.mat", "sol"), [2, 1, 0]);
    assert_eq!(order("mat/darcy_v73_chunked.mat", "sol"), [2, 1, 0]);
    assert_eq!(order("written/types.npz", "fortran"), [2, 1, 0]);
    assert_eq!(order("written/types.h5", "gzip"), [0, 1, 2]);
}

/// More values than one block holds, in either order, and a taker that has enough.
#[test]
fn large_variables_come_in_many_blocks() {
    let mut bytes = b"\x93NUMPY\x01\x00\x46\x00".to_vec();
    let text = "{'descr': '<i4', 'fortran_order': True, 'shape': (1000, 300), }";
    bytes.extend(format!("{text:<69}\n").as_bytes());
    bytes.extend((0..300_000i32).flat_map(i32::to_le_bytes));
    let file = File::from_bytes("x.npy", bytes).unwrap();
    let mut blocks = 0;
    file.scan("x", &mut |first, values| {
        blocks += 1;
        assert!(values.iter().zip(first..).all(|(value, at)| *value == at as f32));
        Ok(())
    })
    .unwrap();
    assert!(blocks > 3, "{blocks}");
    assert_eq!(file.read("x").unwrap().values[1], 1000.0);
    let mut seen = 0;
    let enough = || Error::Setting { what: "taker".into(), why: "has enough".into() };
    let error = file.scan("x", &mut |_, values| {
        seen += values.len();
        Err(enough())
    });
    assert_eq!(error.unwrap_err().to_string(), "taker: has enough");
    assert!(seen < 300_000);
}

/// An archive of 4 MB whose one array has 4 GB: pieces of zeros that stand alone, so that one of them is repeated.
fn zeros_of_4_gb() -> Vec<u8> {
    const PIECE: usize = 1 << 20;
    const PIECES: usize = 1 << 12;
    let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (1073741824,), }";
    let mut header = b"\x93NUMPY\x01\x00\x46\x00".to_vec();
    header.extend(format!("{text:<69}\n").as_bytes());
    let deflated = |bytes: &[u8], end: flate2::FlushCompress| {
        let mut deflate = flate2::Compress::new(flate2::Compression::best(), false);
        let mut out = Vec::with_capacity(bytes.len() + 100);
        deflate.compress_vec(bytes, &mut out, end).unwrap();
        out
    };
    let zeros = vec![0; PIECE];
    let mut stream = deflated(&header, flate2::FlushCompress::Full);
    let piece = deflated(&zeros, flate2::FlushCompress::Full);
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&header);
    for _ in 0..PIECES {
        stream.extend(&piece);
        checksum.update(&zeros);
    }
    stream.extend(deflated(&[], flate2::FlushCompress::Finish));
    // A zip archive by hand; both sizes need 64 bits nowhere but for the plain one, which is in an extra field.
    let plain = (header.len() + PIECE * PIECES) as u64;
    let common = [
        &[45, 0, 0, 0, 8, 0, 0, 0, 0, 0][..],
        &checksum.finalize().to_le_bytes(),
        &(stream.len() as u32).to_le_bytes(),
        &u32::MAX.to_le_bytes(),
        &[5, 0, 20, 0],
    ]
    .concat();
    let extra = [&[1, 0, 16, 0][..], &plain.to_le_bytes(), &(stream.len() as u64).to_le_bytes()].concat();
    let mut file = [b"PK\x03\x04".as_slice(), &common, b"x.npy", &extra, &stream].concat();
    let directory = file.len() as u32;
    file.extend([b"PK\x01\x02\x2d\x00".as_slice(), &common, &[0; 14], b"x.npy", &extra].concat());
    let len = file.len() as u32 - directory;
    file.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    file.extend([len.to_le_bytes(), directory.to_le_bytes()].concat());
    file.extend([0; 2]);
    file
}

#[test]
fn what_grows_too_much_is_refused_with_the_way_out() {
    let bytes = zeros_of_4_gb();
    assert!((4_000_000..4_500_000).contains(&bytes.len()), "{}", bytes.len());
    let len = bytes.len();
    let file = File::from_bytes("x.npz", bytes.clone()).unwrap();
    assert_eq!(file.variables()[0].shape, [1 << 30]);
    let message = file.read("x").unwrap_err().to_string();
    let needed = (1u64 << 32).div_ceil(len as u64);
    let expected = format!(
        "x.npz: variable `x`: 4294967296 bytes out of a file of {len}; more than 64 MB and more than 100 times the file is taken only \
         from a file that is trusted: then allow a factor of {needed} (--expand {needed})"
    );
    assert_eq!(message, expected);
    // The way out: allowed, and its values come; after some of them this test has seen enough.
    let file = File::from_bytes_with("x.npz", bytes, Limits { expansion: needed }).unwrap();
    let mut seen = 0;
    let stopped = file.scan("x", &mut |_, values| {
        assert!(values.iter().all(|value| *value == 0.0));
        seen += values.len();
        if seen < 10_000_000 {
            Ok(())
        } else {
            Err(Error::Setting { what: "s".into(), why: "enough".into() })
        }
    });
    assert_eq!(stopped.unwrap_err().to_string(), "s: enough");

    // MATLAB 5: 80 MB of zeros in 80 kB.
    let mat = Mat5::new(false);
    let matrix = mat.matrix("x", 6, &[10_000, 1000], &mat.element(9, &vec![0; 80_000_000]));
    let bytes = Mat5::new(false).push_compressed(&matrix).bytes;
    let message = File::from_bytes("x.mat", bytes.clone()).unwrap().read("x").unwrap_err().to_string();
    assert!(message.starts_with("x.mat: variable `x`: 80000000 bytes out of a file of "), "{message}");
    let file = File::from_bytes_with("x.mat", bytes, Limits { expansion: 2000 }).unwrap();
    assert_eq!(file.summary("x").unwrap().count, 10_000_000);
    // Below 64 MB nothing is asked, however much it grows.
    let matrix = mat.matrix("x", 6, &[1000, 1000], &mat.element(9, &vec![0; 8_000_000]));
    let file = File::from_bytes("x.mat", Mat5::new(false).push_compressed(&matrix).bytes).unwrap();
    assert_eq!(file.summary("x").unwrap().count, 1_000_000);
}
