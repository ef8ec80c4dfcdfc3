#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| galerkin_fuzz::exercise("x.npz", bytes));
