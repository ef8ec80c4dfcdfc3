#![no_main]
//! Archives. Their checksums keep most changes from the interpreter; `pickle.rs` goes behind them.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    galerkin_fuzz::exercise("x.pt", bytes);
    galerkin_fuzz::exercise_state_dict(bytes);
});
