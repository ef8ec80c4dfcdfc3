//! Values at points.

use std::path::{Path, PathBuf};

use galerkin_data::domain::Sharing;
use galerkin_data::import::{Import, Part, PointVariables};
use galerkin_data::split::Parts;
use galerkin_data::{Dataset, Domain};

use crate::{variables, words, write_npy, write_values};

const SIZES: [(&str, usize); 5] = [("samples", 6), ("points", 4), ("channels", 2), ("x", 5), ("y", 3)];

/// `a.npy` and `u.npy` with these layouts, and points of their own in the files of these names.
fn import(place: &Path, inputs: &str, targets: &str, others: &[&str]) -> Import {
    let files: Vec<PathBuf> =
        ["a", "u"].iter().chain(others).map(|name| place.join(name).with_extension("npy")).collect();
    write_npy(&files[0], inputs, &SIZES, false);
    write_npy(&files[1], targets, &SIZES, true);
    Import { files, variables: variables("a", "u"), ..Import::default() }
}

fn at(names: &str) -> PointVariables {
    PointVariables { coordinates: words(names), ..PointVariables::default() }
}

fn message(import: &Import, place: &Path) -> String {
    import.write(place.join("refused")).unwrap_err().to_string()
}

#[test]
fn points_are_shared_with_weights_and_cells() {
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str| place.path().join(name).with_extension("npy");
    let base = import(place.path(), "samples,points,channels", "points,samples", &["nodes", "area", "tri"]);
    let corners = [0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0];
    write_values(&file("nodes"), &[4, 2], false, &corners);
    write_values(&file("area"), &[4], false, &[0.1, 0.2, 0.3, 0.4]);
    write_values(&file("tri"), &[2, 3], false, &[0.0, 1.0, 2.0, 1.0, 3.0, 2.0]);
    let points = PointVariables { weights: Some("area".into()), cells: Some("tri".into()), ..at("nodes") };
    // Lengths tell the axes: only one of those of u is that of four points.
    let base = Import { points, ..base };
    let folder = place.path().join("d");
    let meta = base.write(&folder).unwrap();
    let Domain::Points(domain) = &meta.domain else { panic!("{}", meta.domain) };
    assert_eq!(
        (domain.sharing, domain.count, &domain.coordinates),
        (Sharing::Shared, Some(4), &words("x,y"))
    );
    assert_eq!((domain.weights, domain.corners, meta.target_domain), (true, Some(3), None));
    let dataset = Dataset::open(&folder).unwrap();
    let sample = dataset.sample(5).unwrap();
    assert_eq!(sample.input.values[4..6], [50_200.0, 50_201.0]);
    assert_eq!(sample.target.values, [50_000.0, 50_100.0, 50_200.0, 50_300.0]);
    let points = dataset.target_points(3).unwrap().unwrap();
    assert_eq!(points.coordinates.values, corners);
    assert_eq!((points.weights, points.cells), (Some(vec![0.1, 0.2, 0.3, 0.4]), vec![0, 1, 2, 1, 3, 2]));

    // The same cells counted from 1.
    write_values(&file("tri"), &[2, 3], false, &[1.0, 2.0, 3.0, 2.0, 4.0, 3.0]);
    assert!(
        message(&base, place.path()).ends_with("found 1 to 4; if points are counted from 1: --cells-from 1")
    );
    let from = Import { points: PointVariables { cells_from: 1, ..base.points.clone() }, ..base.clone() };
    let other = place.path().join("from");
    from.write(&other).unwrap();
    let cells = Dataset::open(&other).unwrap().input_points(0).unwrap().unwrap().cells;
    assert_eq!(cells, [0, 1, 2, 1, 3, 2]);
    write_values(&file("tri"), &[2, 3], false, &[0.0, 1.0, 9.0, 1.0, 3.0, 2.0]);
    assert!(
        message(&base, place.path())
            .contains("--cells tri: expected numbers of 4 points from 0 on, found 0 to 9")
    );
    write_values(&file("nodes"), &[4, 2], false, &[f32::NAN; 8]);
    assert!(message(&base, place.path()).contains("--points nodes: expected finite values, found 8 NaN"));
}

#[test]
fn points_of_every_sample_come_in_one_variable_or_several() {
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str| place.path().join(name).with_extension("npy");
    let base = import(place.path(), "samples,channels", "points,samples", &["px", "py", "both"]);
    write_npy(&file("px"), "points,samples", &SIZES, false);
    write_npy(&file("py"), "points,samples", &SIZES, true);
    write_npy(&file("both"), "samples,points,channels", &SIZES, false);
    // Every axis could be that of the points: which one is told by the samples of the inputs.
    let several = Import { points: at("px,py"), ..base.clone() };
    let folder = place.path().join("several");
    let meta = several.write(&folder).unwrap();
    assert_eq!(
        meta.domain.to_string(),
        "4 points in 2D, others for every sample, without weights, without cells"
    );
    assert_eq!(meta.domain.points().unwrap().coordinates, words("px,py"));
    let dataset = Dataset::open(&folder).unwrap();
    let sample = dataset.sample(3).unwrap();
    // Parameters of a sample stand at all its points.
    assert_eq!(
        (&sample.input.shape[..], &sample.input.values[6..]),
        (&[4, 2][..], &[30_000.0, 30_001.0][..])
    );
    assert_eq!(sample.target.values[1], 30_100.0);
    let points = dataset.input_points(3).unwrap().unwrap();
    assert_eq!(points.coordinates.values[2..4], [30_100.0, 30_100.0]);

    let one = Import { points: at("both"), memory: 40, ..base.clone() };
    let folder = place.path().join("one");
    assert_eq!(one.write(&folder).unwrap().domain.points().unwrap().coordinates, words("x,y"));
    let points = Dataset::open(&folder).unwrap().input_points(2).unwrap().unwrap();
    assert_eq!(points.coordinates.values[6..], [20_300.0, 20_301.0]);

    // Without inputs that tell the samples, both readings are named.
    let alone = Import { variables: variables("u", "u"), ..several };
    let error = message(&alone, place.path());
    assert!(error.contains("--layout samples,points  4 samples on 6 points"), "{error}");
    assert!(error.contains("--layout points,samples  6 samples on 4 points"), "{error}");
    let error = message(
        &Import {
            points: PointVariables::default(),
            layout: words("points,samples"),
            variables: variables("u", "u"),
            ..base.clone()
        },
        place.path(),
    );
    assert!(error.contains("--points NAME says where these are"), "{error}");
    let error = message(
        &Import { points: at("px"), variables: variables("u", "u"), layout: words("x,samples"), ..base },
        place.path(),
    );
    assert!(error.contains("is called `points`"), "{error}");
}

#[test]
fn inputs_on_a_grid_have_targets_at_points() {
    let place = tempfile::tempdir().unwrap();
    let base = import(place.path(), "samples,x,y", "samples,points", &["nodes"]);
    write_npy(&base.files[2], "points,channels", &SIZES, false);
    let base = Import { points: at("nodes"), input_layout: words("samples,x,y"), ..base };
    let folder = place.path().join("d");
    let meta = base.write(&folder).unwrap();
    assert_eq!(meta.domain.to_string(), "5 × 3 points, x and y closed");
    assert_eq!(meta.target_domain().points().unwrap().count, Some(4));
    let dataset = Dataset::open(&folder).unwrap();
    assert!(dataset.input_points(0).unwrap().is_none());
    assert_eq!(dataset.target_points(0).unwrap().unwrap().coordinates.values[2..4], [100.0, 101.0]);
    assert!(message(&Import { subsample: 2, ..base }, place.path()).contains("values lie at points"));
}

#[test]
fn samples_may_have_different_numbers_of_points() {
    let place = tempfile::tempdir().unwrap();
    let far = place.path().join("far");
    std::fs::create_dir(&far).unwrap();
    // Three samples of 2, 0 and 3 points, and one of 1 for a test.
    let mut imports = Vec::new();
    for (folder, count, offsets) in [(place.path(), 5, &[0.0, 2.0, 2.0, 5.0][..]), (&far, 1, &[0.0, 1.0][..])]
    {
        let files: Vec<_> =
            ["a", "u", "nodes", "starts"].map(|name| folder.join(name).with_extension("npy")).into();
        let sizes = [("points", count), ("channels", 2)];
        write_npy(&files[0], "points,channels", &sizes, true);
        write_npy(&files[1], "points", &sizes, false);
        write_npy(&files[2], "points,channels", &sizes, false);
        write_values(&files[3], &[offsets.len()], false, offsets);
        imports.push(files);
    }
    let points = PointVariables { offsets: Some("starts".into()), ..at("nodes") };
    let import = Import {
        files: imports[0].clone(),
        test: Some(Part { files: imports[1].clone(), variables: Default::default() }),
        variables: variables("a", "u"),
        points,
        ..Import::default()
    };
    let folder = place.path().join("d");
    let meta = import.write(&folder).unwrap();
    assert_eq!(
        (meta.samples, meta.split),
        (4, Some(Parts { train: [0, 3], validation: [3, 3], test: [3, 4] }))
    );
    assert_eq!(meta.domain.points().unwrap().sharing, Sharing::Ragged);
    let dataset = Dataset::open(&folder).unwrap();
    assert_eq!(dataset.sample(0).unwrap().target.values, [0.0, 100.0]);
    assert!(dataset.sample(1).unwrap().target.values.is_empty());
    assert_eq!(dataset.sample(2).unwrap().input.values, [200.0, 201.0, 300.0, 301.0, 400.0, 401.0]);
    assert_eq!(dataset.input_points(3).unwrap().unwrap().coordinates.values, [0.0, 1.0]);

    write_values(&imports[0][3], &[3], false, &[0.0, 2.0, 4.0]);
    assert!(
        message(&import, place.path()).contains("expected them to end at the number of points, 5, found 4")
    );
    write_values(&imports[0][3], &[3], false, &[0.0, 6.0, 5.0]);
    assert!(message(&import, place.path()).contains("none less than the one before"));
}
