//! Ratios measured in one run: `cargo bench -p galerkin-kernels` (all groups) or `… -- encoder spectral` (some).
//!
//! R is the number of threads times the rate of single-threaded `gemm` on 240 × 96 × 96, measured first. A row is
//! the best of several repetitions, because on a shared machine the disturbances only ever add time.
//!
//! `… -- instructions` counts instructions instead, with valgrind.
#![allow(clippy::print_stdout)]

mod encoder;
mod instructions;
mod resample;
mod spectral;
mod timing;
mod unfused;

use timing::Machine;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    match &wanted[..] {
        [word, name] if word == instructions::COUNTED => return instructions::counted(name),
        [word] if word == "instructions" => return instructions::run(),
        _ => {}
    }
    let machine = Machine::measure();
    println!(
        "{} threads, gemm 240x96x96 on one thread {:.1} GFLOP/s, R = {:.1} GFLOP/s",
        machine.threads,
        machine.gemm_rate / 1e9,
        machine.r() / 1e9
    );
    let groups: [(&str, fn(&Machine)); 6] = [
        ("encoder", encoder::run),
        ("spectral", spectral::run),
        ("conv", resample::conv),
        ("resize", resample::resize),
        ("adam", resample::adam),
        ("dropout", resample::dropout),
    ];
    for (name, run) in groups {
        if wanted.is_empty() || wanted.iter().any(|w| w == name) {
            println!("\n## {name}");
            run(&machine);
        }
    }
}
