//! What the targets share: everything that can be asked of a file, and what must be true of every answer.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::path::PathBuf;

use galerkin_data::Array;
use galerkin_data::io::{File, torch};

/// Opens bytes as a file, lists it and reads all of it. An error names the file, values are as many as the shape says and no more
/// than the file can hold, and names that are shown have no control characters.
pub fn exercise(name: &str, bytes: &[u8]) {
    // More than deflate can make of the file; decoders pad and round, hence the constant.
    let most = bytes.len() * 1032 + 4096;
    let file = match File::from_bytes(name, bytes.to_vec()) {
        Ok(file) => file,
        Err(error) => return named(name, &error),
    };
    // One file may name the same values many times: each reading is bounded by the file, not their number.
    let mut budget = 4 * most;
    for variable in file.variables() {
        let mut next = 0;
        let scanned = file.scan(&variable.name, &mut |first, values| {
            assert_eq!(first, next, "blocks follow one another");
            assert!(!values.is_empty() && values.len() <= 1 << 18, "{} at once", values.len());
            next += values.len();
            assert!(next <= most, "{next} values of {most} bytes");
            Ok(())
        });
        match scanned {
            // Names may be there twice; the first is read.
            Ok(()) => assert_eq!(next, file.variable(&variable.name).unwrap().len()),
            Err(error) => named(name, &error),
        }
        if next > budget {
            return;
        }
        budget -= next;
        match file.read(&variable.name) {
            Ok(array) => {
                let len = array.shape.iter().try_fold(1usize, |product, n| product.checked_mul(*n));
                assert_eq!(len, Some(array.values.len()));
            }
            Err(error) => named(name, &error),
        }
    }
}

/// The same bytes as the weights of a model.
pub fn exercise_state_dict(bytes: &[u8]) {
    let arrays = match torch::from_bytes("x.pt", bytes.to_vec()) {
        Ok(arrays) => arrays,
        Err(error) => return named("x.pt", &error),
    };
    let values: usize = arrays.values().map(|array| array.values.len()).sum();
    assert!(values <= bytes.len(), "{values} values of {} bytes", bytes.len());
    for array in arrays.values() {
        assert_eq!(array.shape.iter().product::<usize>(), array.values.len());
    }
}

/// Wants the name of the file in a message that a terminal can show.
pub fn named(name: &str, error: &dyn std::error::Error) {
    let message = error.to_string();
    assert!(message.contains(name), "{message:?} does not name {name}");
    let harmless = |c: char| c == '\n' || !c.is_control();
    assert!(message.chars().all(harmless), "{message:?} has control characters");
}

/// A folder in memory where the system has one: targets that need files write thousands per second.
pub fn scratch() -> tempfile::TempDir {
    let memory = PathBuf::from("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a folder for files of the fuzzer")
}

/// Shapes and bits by name: values may be NaN, which equals nothing.
pub fn bits(arrays: &BTreeMap<String, Array>) -> BTreeMap<&str, (&[usize], Vec<u32>)> {
    let bits = |array: &Array| array.values.iter().map(|value| value.to_bits()).collect();
    arrays.iter().map(|(name, array)| (name.as_str(), (&array.shape[..], bits(array)))).collect()
}

/// The memory of targets without AddressSanitizer, where libFuzzer does not see what is asked for: `-malloc_limit_mb` does nothing there.
pub struct Bounded;

impl Bounded {
    /// As `fuzz/run` says to libFuzzer.
    const MOST: usize = 512 << 20;

    /// An allocator may not unwind.
    fn check(bytes: usize) {
        if bytes > Self::MOST {
            eprintln!("{bytes} bytes at once\n{}", std::backtrace::Backtrace::force_capture());
            std::process::abort();
        }
    }
}

// SAFETY: every method hands its arguments on to `System` as they are, so the caller's promises are those that `System` asks for.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::check(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::check(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::check(size);
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}
