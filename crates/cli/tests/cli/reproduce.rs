//! The paper's experiments, as far as seconds go.

use std::path::Path;

use crate::Desk;

#[test]
fn a_row_is_trained_once_and_reported_beside_the_paper() {
    let desk = Desk::new();
    let error = desk.fails("reproduce burgers --only burgers-rnn -q", 2);
    assert!(error.contains("the rows are burgers-fno, burgers-ft-residual"), "{error}");
    assert!(desk.fails("reproduce burgers --report", 1).contains("nothing was run"));

    let said = desk.works("reproduce burgers --only burgers-fno -q");
    let row = |name: &str| said.lines().find(|line| line.trim_start().starts_with(name)).unwrap().to_string();
    assert!(row("FNO1d").contains("4.373") && row("FNO1d").contains("24 of 24"), "{said}");
    assert!(row("GT, norm of K, V").contains("not run"), "{said}");
    let weights = desk.path("runs/reproduce/quick/burgers-fno/model.safetensors");
    let trained = || std::fs::metadata(&weights).unwrap().modified().unwrap();
    let before = trained();
    // Called again, and in another experiment's name, nothing is trained again.
    assert_eq!(desk.works("reproduce burgers --only burgers-fno -q"), said);
    assert_eq!(desk.works("reproduce burgers --report"), said);
    assert_eq!(trained(), before);

    let folder = said.lines().find_map(|line| line.strip_prefix("wrote ")).unwrap();
    assert!(folder.ends_with("-burgers-quick"), "{folder}");
    let read = |file: &str| std::fs::read_to_string(desk.path(folder).join(file)).unwrap();
    assert!(read("README.md").contains("galerkin reproduce burgers --scale quick"));
    assert!(read("README.md").contains("Not run: burgers-ft-residual"));
    let table = read("table.csv");
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.lines().nth(1).unwrap().starts_with("burgers-fno,128,0,"), "{table}");
    assert!(read("config/burgers-fno.toml").contains("name = \"fno-burgers\""));
    assert!(read("figures/convergence.svg").starts_with("<svg"));
    // What somebody wrote beside the tables stays.
    std::fs::write(desk.path(folder).join("notes.md"), "On a slow machine.\n").unwrap();
    assert_eq!(desk.works("reproduce burgers --report"), said);
    assert!(read("README.md").ends_with("\nOn a slow machine.\n"));

    let changed = "reproduce seeds --only burgers-gt-heads-beta2 --runs other -q";
    std::fs::create_dir_all(desk.path("other/quick/burgers-gt-heads-beta2")).unwrap();
    let config = desk.works("config burgers");
    std::fs::write(desk.path("other/quick/burgers-gt-heads-beta2/config.toml"), config).unwrap();
    assert!(desk.fails(changed, 1).contains("a run with other settings is here"));
}

#[test]
fn noise_is_drawn_for_every_model_that_was_trained() {
    let desk = Desk::new();
    let said = desk.works("reproduce noise --only inverse-gt-heads-0.01 -q");
    let row = |name: &str| said.lines().find(|line| line.trim_start().starts_with(name)).unwrap().to_string();
    assert!(row("GT, trained at ε = 0.01").contains("6 of 6"), "{said}");
    assert!(row("GT, trained at ε = 0.1").contains("not run"), "{said}");
    let folder = desk.path(said.lines().find_map(|line| line.strip_prefix("wrote ")).unwrap());
    let figure = std::fs::read_to_string(folder.join("figures/reconstructions.svg")).unwrap();
    for words in ["u, ε = 0.05", "GT, trained at ε = 0.01", "ε = 0.1: error"] {
        assert!(figure.contains(words), "{words}");
    }
    assert!(!figure.contains("trained at ε = 0.1<"));

    // The same run in the table it is a row of, with pictures of its own.
    let said = desk.works("reproduce darcy-inverse --report -q");
    let folder = desk.path(said.lines().find_map(|line| line.strip_prefix("wrote ")).unwrap());
    let text = std::fs::read_to_string(folder.join("README.md")).unwrap();
    for name in ["samples", "noise", "latents"] {
        let file = format!("figures/inverse-gt-heads-0.01-{name}.png");
        assert!(text.contains(&file) && folder.join(&file).exists(), "{file}");
    }
}

#[test]
fn the_theorems_hold() {
    let desk = Desk::new();
    let headings = ["Attention is the projection", "The lower bound", "Céa's inequality", "Not checked: "];
    let said = desk.works("reproduce theory -q");
    assert!(headings.iter().all(|heading| said.contains(heading)), "{said}");

    // Without a run of its own it takes the model that comes with the repository.
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../pretrained/burgers");
    std::fs::create_dir_all(desk.path("pretrained/burgers")).unwrap();
    for file in ["config.toml", "model.safetensors"] {
        std::fs::copy(from.join(file), desk.path("pretrained/burgers").join(file)).unwrap();
    }
    let said = desk.works("reproduce theory -q");
    let layers = said.split("of pretrained/burgers").nth(1).expect("a section on its layers");
    assert_eq!(layers.lines().filter(|line| line.starts_with("| ")).count(), 2 + 4, "{layers}");
    let folder = said.lines().find_map(|line| line.strip_prefix("wrote ")).unwrap();
    assert!(desk.path(folder).join("figures/lower-bound.png").exists());
    assert!(desk.path(folder).join("table.csv").exists());
}

#[test]
fn costs_are_measured_once_and_stand_beside_the_papers() {
    let desk = Desk::new();
    let error = desk.fails("reproduce memory-speed --only burgers-rnn -q", 2);
    assert!(error.contains("the rows are burgers-gt-128, burgers-gt-256"), "{error}");
    assert!(desk.fails("reproduce memory-speed --report", 1).contains("nothing was measured"));
    let said = desk.works("reproduce memory-speed --only burgers-gt-128 --only burgers-gt-256 -q");
    let row = |name: &str| said.lines().find(|line| line.trim_start().starts_with(name)).unwrap().to_string();
    let number = |line: &str, at: usize| line.split_whitespace().nth(at).unwrap().parse::<f64>().unwrap();
    // Memory and steps per second of two grids, and operations of the larger one: twice as many.
    assert!(number(&row("burgers-gt-128"), 2) > 1.0 && number(&row("burgers-gt-128"), 3) > 1.0, "{said}");
    let ratio = number(&row("burgers-gt-256"), 5) / number(&row("burgers-gt-128"), 5);
    assert!((ratio - 2.0).abs() < 0.1, "{said}");
    assert!(row("encoder-st-256").contains("not run"), "{said}");
    // Measured again they would differ.
    assert_eq!(desk.works("reproduce memory-speed --report -q"), said);
    let folder = said.lines().find_map(|line| line.strip_prefix("wrote ")).unwrap();
    let read = |file: &str| std::fs::read_to_string(desk.path(folder).join(file)).unwrap();
    assert!(read("README.md").contains("galerkin reproduce memory-speed --scale quick"));
    assert_eq!(read("table.csv").lines().count(), 3);
    assert!(read("config/burgers-gt.json").contains("galerkin"));
    assert!(read("figures/time.svg").starts_with("<svg") && read("figures/memory.svg").starts_with("<svg"));
}
