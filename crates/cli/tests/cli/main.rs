//! The real binary in temporary folders.

mod bench;
mod costs;
mod demo;
mod faults;
mod generate;
mod help;
mod import;
mod info;
mod operators;
mod reproduce;
mod safety;
mod train;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A folder to work in.
struct Desk(TempDir);

/// What a command said.
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Desk {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Names of all files and folders on it, sorted.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The binary with words separated by spaces, at work in this folder.
    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_galerkin"));
        command.args(words.split_whitespace()).current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, words: &str) -> Said {
        let output = self.command(words).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// [`run`](Self::run) of what must succeed; returns standard output.
    fn works(&self, words: &str) -> String {
        let said = self.run(words);
        assert_eq!(said.code, Some(0), "{words}\n{}", said.err);
        said.out
    }

    /// [`run`](Self::run) of what must fail with a code; returns standard error.
    fn fails(&self, words: &str, code: i32) -> String {
        let said = self.run(words);
        assert_eq!(said.code, Some(code), "{words}\n{}{}", said.out, said.err);
        assert!(said.err.starts_with("error: ") && said.out.is_empty(), "{}{}", said.out, said.err);
        said.err
    }

    /// The bytes of the three files of a dataset.
    fn dataset(&self, name: &str) -> [Vec<u8>; 3] {
        ["inputs.npy", "targets.npy", "meta.toml"]
            .map(|file| std::fs::read(self.path(name).join(file)).unwrap())
    }
}

/// A fixture of the readers.
fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/tests/fixtures").join(name);
    path.canonicalize().unwrap().into_os_string().into_string().unwrap()
}
