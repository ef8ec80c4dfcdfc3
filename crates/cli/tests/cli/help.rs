//! Help texts, compared with those on record; GALERKIN_RECORD=1 writes them anew.

use crate::Desk;
use std::path::Path;

#[test]
fn help_texts_are_those_on_record() {
    let desk = Desk::new();
    let verbs = [
        "",
        "demo",
        "generate",
        "generate burgers",
        "generate darcy",
        "import",
        "info",
        "config",
        "train",
        "evaluate",
        "predict",
        "plot",
        "reproduce",
        "bench",
        "bench pytorch",
        "bench scale",
        "import-weights",
        "completions",
    ];
    for verb in verbs {
        let said = desk.works(&format!("{verb} --help"));
        assert!(said.contains("Example"), "{verb}");
        assert!(said.lines().all(|line| line.chars().count() <= 140), "{said}");
        let name = if verb.is_empty() { "galerkin".into() } else { verb.replace(' ', "-") };
        let record =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/help").join(name).with_extension("txt");
        if std::env::var_os("GALERKIN_RECORD").is_some() {
            std::fs::write(&record, &said).unwrap();
        }
        let recorded = std::fs::read_to_string(&record).unwrap();
        assert_eq!(said, recorded, "{}", record.display());
    }
}

#[test]
fn every_example_of_the_help_parses() {
    // Up to the point where a file or a folder is missing: no word of an example is unknown.
    let desk = Desk::new();
    for verb in ["import", "info"] {
        let help = desk.works(&format!("{verb} --help"));
        let examples: Vec<_> = help.lines().filter(|line| line.starts_with("  galerkin ")).collect();
        assert!(!examples.is_empty());
        for example in examples {
            let error = desk.fails(example.trim().strip_prefix("galerkin ").unwrap(), 1);
            assert!(error.contains("No such file"), "{example}: {error}");
        }
    }
}

#[test]
fn wrong_words_are_wrong_usage() {
    let desk = Desk::new();
    for words in [
        "paint",
        "generate heat --samples 1 --out d",
        "generate burgers --out d",
        "generate burgers --samples 0 --out d",
        "generate burgers --samples 5 --preset paper --out d",
        "generate burgers --samples 5 --seed -1 --out d",
        "generate darcy --samples 5 --contrast 12 --out d",
        "generate darcy --samples 5 --lognormal 0,1 --threshold 1 --out d",
        "import --out d",
        "import a.mat --out d --subsample 0",
        "info d --figure d.pdf",
        "evaluate run --resolutions --grid 64",
        "bench --threads 0",
        "bench pytorch --repetitions 0",
        "bench pytorch --train d",
        "bench pytorch --train d --run r --seconds 3",
        "bench pytorch --epochs 3",
    ] {
        desk.fails(words, 2);
    }
    assert!(desk.names().is_empty());
}

#[test]
fn completions_know_the_verbs() {
    let desk = Desk::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = desk.works(&format!("completions {shell}"));
        for word in ["generate", "burgers", "viscosity", "import", "info"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}
