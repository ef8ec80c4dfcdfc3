//! What `cargo deny check licenses sources bans` says, without installing it: every licence is one that `deny.toml` allows, every crate comes from
//! crates.io or from this repository, and no version is left open.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// What `deny.toml` allows.
struct Allowed {
    licences: BTreeSet<String>,
    /// A crate and a licence that it alone may have.
    exceptions: BTreeSet<(String, String)>,
}

impl Allowed {
    fn read(root: &Path) -> Self {
        let text = std::fs::read_to_string(root.join("deny.toml")).unwrap();
        let table: toml::Table = text.parse().unwrap();
        let words = |value: &toml::Value| -> Vec<String> {
            value.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_string()).collect()
        };
        let licences = &table["licenses"];
        let exceptions = licences["exceptions"].as_array().unwrap().iter();
        let exceptions = exceptions.flat_map(|exception| {
            let name = exception["crate"].as_str().unwrap();
            words(&exception["allow"]).into_iter().map(move |licence| (name.to_string(), licence))
        });
        Self { licences: words(&licences["allow"]).into_iter().collect(), exceptions: exceptions.collect() }
    }

    fn licence(&self, name: &str, licence: &str) -> bool {
        self.licences.contains(licence) || self.exceptions.contains(&(name.to_string(), licence.to_string()))
    }

    /// An expression of SPDX, with the old way to write OR. AND binds closer than OR.
    fn expression(&self, name: &str, text: &str) -> bool {
        let spaced = text.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let (fits, rest) = self.any(name, &words);
        assert!(rest.is_empty(), "{name}: {text}");
        fits
    }

    fn any<'a>(&self, name: &str, words: &'a [&'a str]) -> (bool, &'a [&'a str]) {
        let (mut fits, mut rest) = self.all(name, words);
        while let ["OR", after @ ..] = rest {
            let (other, after) = self.all(name, after);
            (fits, rest) = (fits | other, after);
        }
        (fits, rest)
    }

    fn all<'a>(&self, name: &str, words: &'a [&'a str]) -> (bool, &'a [&'a str]) {
        let (mut fits, mut rest) = self.one(name, words);
        while let ["AND", after @ ..] = rest {
            let (other, after) = self.one(name, after);
            (fits, rest) = (fits & other, after);
        }
        (fits, rest)
    }

    fn one<'a>(&self, name: &str, words: &'a [&'a str]) -> (bool, &'a [&'a str]) {
        match words {
            ["(", inner @ ..] => match self.any(name, inner) {
                (fits, [")", rest @ ..]) => (fits, rest),
                (_, rest) => panic!("{name}: expected a closing parenthesis, found {rest:?}"),
            },
            [licence, "WITH", exception, rest @ ..] => {
                (self.licence(name, &format!("{licence} WITH {exception}")), rest)
            }
            [licence, rest @ ..] => (self.licence(name, licence), rest),
            [] => panic!("{name}: expected a licence"),
        }
    }
}

#[test]
fn licences_and_sources_are_allowed() {
    check_tree(&["--target", "x86_64-unknown-linux-gnu"]);
}

#[test]
#[ignore = "downloads the crates of features and systems that are not built"]
fn licences_and_sources_of_all_features_and_systems_are_allowed() {
    check_tree(&["--target", "all", "--all-features"]);
}

/// Checks every crate that `cargo tree` lists with these arguments.
fn check_tree(which: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    // `cargo metadata` also lists crates of features that are off.
    cargo.args(["tree", "--workspace", "--locked", "--prefix", "none", "--format", "{p}|{l}|"]);
    cargo.args(which).current_dir(&root);
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let allowed = Allowed::read(&root);
    let text = String::from_utf8(output.stdout).unwrap();
    let packages: BTreeSet<(&str, &str)> = text
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| {
            let mut parts = line.split('|');
            (parts.next().unwrap(), parts.next().unwrap())
        })
        .collect();
    assert!(packages.len() > 100, "{} packages", packages.len());
    for (package, licence) in packages {
        let name = package.split_whitespace().next().unwrap();
        assert!(allowed.expression(name, licence), "{name}: {licence:?} is not among those of deny.toml");
        // A source that is not crates.io stands in parentheses; so does the kind of a crate of macros.
        let source = package.split_once('(').map(|(_, rest)| rest.split(')').next().unwrap());
        let ours = source.is_some_and(|source| Path::new(source).starts_with(&root));
        assert!(source.is_none_or(|source| source == "proc-macro" || ours), "{package}");
    }
    let manifest: toml::Table = std::fs::read_to_string(root.join("Cargo.toml")).unwrap().parse().unwrap();
    for (name, dependency) in manifest["workspace"]["dependencies"].as_table().unwrap() {
        let version = dependency.as_str().or_else(|| dependency.get("version").and_then(|v| v.as_str()));
        assert!(version != Some("*"), "{name}: any version");
    }
}

#[test]
fn expressions_of_licences() {
    let words = |list: &[&str]| list.iter().map(ToString::to_string).collect();
    let exceptions = [("odd".to_string(), "ISC".to_string())].into();
    let allowed = Allowed { licences: words(&["MIT", "Apache-2.0 WITH LLVM-exception"]), exceptions };
    let fits = |text: &str| allowed.expression("other", text);
    assert!(
        fits("MIT") && fits("MIT/Apache-2.0") && fits("GPL-3.0 OR MIT") && fits("(GPL-3.0 OR MIT) AND MIT")
    );
    assert!(!fits("GPL-3.0") && !fits("MIT AND GPL-3.0") && !fits("Apache-2.0") && !fits("ISC"));
    assert!(fits("Apache-2.0 WITH LLVM-exception") && allowed.expression("odd", "ISC AND MIT"));
}
