use crate::{Desk, fixture};
use std::process::Stdio;

#[test]
fn a_dataset_says_where_it_comes_from_and_what_it_holds() {
    let desk = Desk::new();
    desk.works("generate darcy --samples 6 --grid 9 --modes 4 --seed 2 -q --out d");
    let said = desk.works("info d");
    let lines: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0].join(" "), "d: dataset of 6 samples");
    assert_eq!(lines[1].join(" "), "problem Darcy, coefficient 12 above and 3 below 0");
    assert_eq!(lines[2].join(" "), "grid 9 × 9 points, y and x closed");
    assert_eq!(lines[3].join(" "), "sizes 9, 5, 3, 2");
    assert_eq!(lines[4].join(" "), "seed 2");
    assert_eq!(lines[6].join(" "), "variable shape type min max mean NaN infinite");
    assert_eq!(lines[7][..8].join(" "), "inputs [6, 9, 9, 1] float32 3 12");
    assert_eq!(lines[7][9..].join(" "), "0 0");
    assert_eq!(lines[8][..7].join(" "), "targets [6, 9, 9, 1] float32 0");
    assert_eq!(lines.len(), 9);
}

#[test]
fn a_file_lists_its_variables() {
    let desk = Desk::new();
    let said = desk.works(&format!("info {}", fixture("mat/darcy_v5.mat")));
    for words in ["darcy_v5.mat: MATLAB 5", "coeff", "[3, 7, 7]", "float64", "sol"] {
        assert!(said.contains(words), "{said}");
    }
    let said = desk.works(&format!("info {}", fixture("written/classes.mat")));
    for words in ["x_i4", "int32", "a cell array", "an array of complex numbers"] {
        assert!(said.contains(words), "{said}");
    }
    let said = desk.works(&format!("info {}", fixture("torch/checkpoint.pt")));
    assert!(said.contains("checkpoint.pt: PyTorch") && said.lines().count() > 2, "{said}");
}

#[test]
fn values_that_are_no_numbers_are_counted() {
    let desk = Desk::new();
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }";
    let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    file.extend(format!("{header:<117}\n").as_bytes());
    file.extend([1.5, f32::NAN, f32::INFINITY, -2.5].map(f32::to_le_bytes).as_flattened());
    std::fs::write(desk.path("holes.npy"), file).unwrap();
    let said = desk.works("info holes.npy");
    let row: Vec<_> = said.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(row, ["holes", "[4]", "float32", "-2.5", "1.5", "-0.5", "1", "1"]);
}

#[test]
fn figures_go_where_they_are_told_or_here() {
    let desk = Desk::new();
    desk.works("generate burgers --samples 2 --grid 64 --modes 8 -q --out data/waves");
    desk.works("generate darcy --samples 2 --grid 9 --modes 4 -q --out data/flow");
    assert!(desk.works("info data/waves --figure").ends_with("drew waves.png\n"));
    assert!(desk.works("info data/flow --figure data/flow.svg").ends_with("drew data/flow.svg\n"));
    assert_eq!(desk.names(), ["data", "waves.png"]);
    let png = std::fs::read(desk.path("waves.png")).unwrap();
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n") && png.len() > 10_000);
    let svg = std::fs::read_to_string(desk.path("data/flow.svg")).unwrap();
    for words in ["coefficient a(x, y)", "solution u(x, y)", "sample 1", "9 × 9 points", "<image "] {
        assert!(svg.contains(words), "{words}");
    }
    // The same dataset has the same figure.
    desk.works("info data/waves --figure again.png");
    assert!(std::fs::read(desk.path("again.png")).unwrap() == png);
}

#[test]
fn errors_name_the_file() {
    let desk = Desk::new();
    assert!(desk.fails("info nothing", 1).contains("nothing: No such file"));
    std::fs::create_dir(desk.path("empty")).unwrap();
    assert!(desk.fails("info empty", 1).contains("empty: meta.toml: expected the description of a dataset"));
    std::fs::write(desk.path("noise.bin"), [7; 100]).unwrap();
    assert!(desk.fails("info noise.bin", 1).contains("noise.bin: first bytes: expected a file of numpy"));
    let error = desk.fails(&format!("info {} --figure d.png", fixture("mat/darcy_v5.mat")), 1);
    assert!(error.contains("figures are drawn of dataset folders; `galerkin import"), "{error}");
    desk.works("generate burgers --samples 2 --grid 16 --modes 4 -q --out b");
    let error = desk.run("info b --figure no/folder/b.png").err;
    assert!(error.contains("no/folder/b.png: No such file"), "{error}");
}

/// A reader that closes its end, as `head` does, is no error.
#[test]
fn a_closed_pipe_is_no_error() {
    let desk = Desk::new();
    for words in ["completions bash".to_string(), format!("info {}", fixture("mat/darcy_v5.mat"))] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = desk.command(&words).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{words}");
    }
}
