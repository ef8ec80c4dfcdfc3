use crate::{Desk, fixture};

#[test]
fn published_files_are_known_by_their_variables() {
    let desk = Desk::new();
    for (k, file) in
        ["burgers_v5.mat", "burgers_v5_compressed.mat", "burgers_v73.mat", "burgers_v73_chunked.mat"]
            .into_iter()
            .enumerate()
    {
        let out = desk.works(&format!("import {} --out b{k}", fixture(&format!("mat/{file}"))));
        assert_eq!(out, format!("wrote b{k}: 4 samples on 16 points\n"));
        assert!(desk.dataset(&format!("b{k}"))[..2] == desk.dataset("b0")[..2], "{file}");
    }
    let out = desk.works(&format!("import {} --out d --subsample 3", fixture("mat/darcy_v5.mat")));
    assert_eq!(out, "wrote d: 3 samples on 3 × 3 points\n");
}

#[test]
fn variables_and_problem_can_be_named() {
    let desk = Desk::new();
    let [a, u] = ["mat/burgers.a.npy", "mat/burgers.u.npy"].map(fixture);
    let error = desk.fails(&format!("import {a} {u} --out d"), 1);
    assert!(error.contains("burgers.a.npy: variables: expected `a` and `u`"), "{error}");
    let names = "--inputs burgers.a --targets burgers.u";
    let out = desk.works(&format!("import {a} {u} {names} --problem burgers --out d"));
    assert_eq!(out, "wrote d: 4 samples on 16 points\n");
    desk.works(&format!("import {} --out e", fixture("mat/burgers_v5.mat")));
    assert!(desk.dataset("d")[..2] == desk.dataset("e")[..2]);
}

#[test]
fn what_does_not_fit_is_named_and_leaves_nothing_behind() {
    let desk = Desk::new();
    let file = fixture("mat/burgers_v5.mat");
    let cases = [
        (format!("import {file} --inputs b --out d"), "no variable `b`; the file has a, u"),
        (format!("import {file} --subsample 3 --out d"), "sizes that work: 16, 8, 4, 2, 1"),
        (format!("import {file} --problem darcy --out d"), "no variable `coeff`"),
        ("import nothing.mat --out d".into(), "nothing.mat: No such file"),
    ];
    for (words, message) in cases {
        let error = desk.fails(&words, 1);
        assert!(error.contains(message), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    assert!(desk.names().is_empty());
    desk.works(&format!("import {file} --out d"));
    let error = desk.fails(&format!("import {file} --out d"), 1);
    assert!(error.contains("d: folder: expected a name that is free"), "{error}");
}
