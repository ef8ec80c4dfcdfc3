//! Kills at random moments, with random numbers of threads: what is there at the end has the bytes of work that nobody disturbed.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use galerkin_data::random::{Purpose, Stream};

use crate::Desk;

/// A command, with `OUT` for what it writes.
struct Job {
    words: String,
    out: &'static str,
    /// Words that make it go on; without them it begins again.
    resume: &'static str,
}

fn jobs() -> Vec<Job> {
    let job = |words: &str, out, resume| Job { words: words.into(), out, resume };
    vec![
        job(
            "generate burgers --samples 160 --grid 512 --modes 256 --tolerance 1e-8 --out OUT -q",
            "made",
            "",
        ),
        job(
            "import data/inputs.npy data/targets.npy --inputs inputs --targets targets --periodic x --out OUT",
            "taken",
            "",
        ),
        job(
            "train burgers --data data --set data.grid=64 --set data.train=24 --set data.validation=6 --set data.test=8 --set train.batch=4 \
             --set network.encoder.width=24 --set network.encoder.hidden=48 --set network.encoder.layers=2 --set train.epochs=20 \
             --set checkpoint.every_steps=7 --out OUT -q",
            "run",
            "--resume",
        ),
        job("predict trained --input data/inputs.npy --output OUT -q", "y.npy", ""),
    ]
}

/// Every job is killed so many times while it is at work, and then let be.
fn kill(times: u32, seed: u64) {
    let desk = Desk::new();
    desk.works("generate burgers --samples 40 --grid 512 --modes 64 --tolerance 1e-5 --out data -q");
    desk.works(
        "train burgers --data data --set data.grid=128 --set data.train=24 --set data.validation=6 --set data.test=8 --set train.batch=4 \
         --set network.encoder.width=24 --set network.encoder.hidden=48 --set train.epochs=1 --out trained -q",
    );
    for (number, Job { words, out, resume }) in jobs().iter().enumerate() {
        let begin = Instant::now();
        desk.works(&words.replace("OUT", &format!("whole-{out}")));
        let whole = begin.elapsed();
        let draws = Stream { seed, purpose: Purpose::Noise, index: number as u32 };
        let mut at = 0;
        let mut draw = || {
            at += 1;
            draws.uniform(at)
        };
        let command = |threads: f64| {
            let mut command = desk.command(&format!("{} {resume}", words.replace("OUT", out)));
            command.env("RAYON_NUM_THREADS", (1 + (4.0 * threads) as u32).to_string());
            command.stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let expected = files(&desk.path(&format!("whole-{out}")));
        let check = || {
            let found = files(&desk.path(out));
            let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
            assert_eq!(names(&expected), names(&found), "{words}");
            for (name, bytes) in &expected {
                assert!(*bytes == found[name], "{words}: {name} differs");
            }
        };
        let mut killed = 0;
        for _ in 0..40 * times {
            if killed == times {
                break;
            }
            if resume.is_empty() && desk.path(out).exists() {
                // It was killed when all was done, or came to its end.
                check();
                remove(&desk.path(out));
            }
            let mut child = command(draw()).spawn().unwrap();
            std::thread::sleep(Duration::from_secs_f64(whole.as_secs_f64() * draw()));
            match child.try_wait().unwrap() {
                None => {
                    killed += 1;
                    child.kill().unwrap();
                    child.wait().unwrap();
                }
                Some(status) => {
                    assert!(status.success(), "{words}");
                    check();
                    remove(&desk.path(out));
                }
            }
        }
        assert_eq!(killed, times, "{words}: it was always over before it could be killed");
        // The last kill may have come when all was done.
        if !desk.path(out).exists() || !resume.is_empty() {
            let output = command(draw()).stderr(Stdio::piped()).output().unwrap();
            assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
        }
        check();
    }
}

fn remove(path: &Path) {
    match path.is_dir() {
        true => std::fs::remove_dir_all(path).unwrap(),
        false => std::fs::remove_file(path).unwrap(),
    }
}

/// All files below a path by name, but for two that a kill after the last byte leaves and that nobody reads, and for clocks.
fn files(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    if path.is_file() {
        found.insert(String::new(), std::fs::read(path).unwrap());
        return found;
    }
    for entry in std::fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if [".lock", "progress.toml", "clock.json", "clock.jsonl"].contains(&name.as_str()) {
            continue;
        }
        for (below, bytes) in files(&entry.path()) {
            found.insert(format!("{name}/{below}"), bytes);
        }
    }
    found
}

#[test]
fn killed_work_ends_with_the_same_bytes() {
    kill(3, 1);
}

/// `cargo test --release -p galerkin-cli --test cli -- --ignored --nocapture two_hundred`
#[test]
#[ignore = "takes minutes"]
fn two_hundred_kills() {
    kill(50, 2);
}
