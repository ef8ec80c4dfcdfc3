//! Axes in any order, on grids.

use std::fs;
use std::path::{Path, PathBuf};

use galerkin_data::import::{Import, Part};
use galerkin_data::split::Parts;
use galerkin_data::{Axis, Dataset};

use crate::{arrays, variables, words, write_npy, write_values};

const SIZES: [(&str, usize); 5] = [("samples", 7), ("time", 2), ("x", 5), ("y", 3), ("channels", 2)];

/// `a.npy` and `u.npy` with these layouts.
fn pair(place: &Path, inputs: &str, targets: &str, column_major: bool) -> Import {
    let files: Vec<PathBuf> = ["a.npy", "u.npy"].iter().map(|name| place.join(name)).collect();
    write_npy(&files[0], inputs, &SIZES, column_major);
    write_npy(&files[1], targets, &SIZES, column_major);
    Import { files, variables: variables("a", "u"), ..Import::default() }
}

fn message(import: &Import, place: &Path) -> String {
    import.write(place.join("refused")).unwrap_err().to_string()
}

#[test]
fn axes_in_any_order_give_the_same_dataset() {
    let place = tempfile::tempdir().unwrap();
    let folder = |name: &str| place.path().join(name);
    let mut count = 0;
    let mut import = |inputs: &str, targets: &str, column_major: bool, memory: usize| {
        count += 1;
        let import = pair(place.path(), inputs, targets, column_major);
        let import = Import { input_layout: words(inputs), target_layout: words(targets), memory, ..import };
        let folder = folder(&count.to_string());
        let meta = import.write(&folder).unwrap();
        Dataset::open(&folder).unwrap();
        (arrays(&folder), meta)
    };
    let plain = import("samples,x,y,channels", "samples,time,x,y,channels", false, 0);
    for (inputs, targets) in [
        ("samples,x,y,channels", "samples,time,x,y,channels"),
        ("x,y,samples,channels", "x,y,samples,channels,time"),
        ("channels,samples,x,y", "channels,samples,x,y,time"),
        ("x,y,channels,samples", "x,time,y,channels,samples"),
        ("x,samples,y,channels", "time,y,x,channels,samples"),
    ] {
        for column_major in [false, true] {
            // All at once, and one or two samples at a time: a sample of the inputs has 120 bytes.
            for memory in [0, 1, 250] {
                let found = import(inputs, targets, column_major, memory);
                assert!(found == plain, "{inputs} {targets} {column_major} {memory}");
            }
        }
    }
    // What is compared tells where it came from.
    let dataset = Dataset::open(folder("1")).unwrap();
    let target = dataset.sample(6).unwrap().target;
    assert_eq!(target.shape, [2, 5, 3, 2]);
    // The last of all: time 1, x 4, y 2, channel 1.
    assert_eq!(target.values.last(), Some(&61_421.0));
    assert_eq!(plain.1.time, Some(Axis::unit("time", 2, false)));
    assert_eq!((plain.1.inputs, plain.1.targets), (words("a0,a1"), words("u0,u1")));
}

#[test]
fn coarse_grids_come_from_any_order() {
    let place = tempfile::tempdir().unwrap();
    let mut found = Vec::new();
    for (k, layout) in ["samples,x,y", "y,x,samples", "y,samples,x"].into_iter().enumerate() {
        for column_major in [false, true] {
            let import = pair(place.path(), layout, layout, column_major);
            let (input_layout, target_layout) = (words("samples,x,y"), words(layout));
            write_npy(&place.path().join("a.npy"), "samples,x,y", &SIZES, false);
            let folder = place.path().join(format!("{k}{column_major}"));
            let import = Import { input_layout, target_layout, subsample: 2, memory: 40, ..import };
            let meta = import.write(&folder).unwrap();
            // Targets are put into the order of the inputs.
            assert_eq!(
                (meta.domain.to_string(), meta.target_domain),
                ("3 × 2 points, x and y closed".into(), None)
            );
            found.push(arrays(&folder));
        }
    }
    assert!(found.iter().all(|arrays| *arrays == found[0]));
    assert_eq!(found[0][0], found[0][1]);
    let sample = Dataset::open(place.path().join("0false")).unwrap().sample(3).unwrap();
    assert_eq!(sample.input.values, [30_000.0, 30_020.0, 30_200.0, 30_220.0, 30_400.0, 30_420.0]);
}

#[test]
fn what_is_clear_needs_no_layout() {
    let place = tempfile::tempdir().unwrap();
    for (k, (inputs, targets)) in [
        ("samples,x", "samples,x"),
        ("samples,x,y,channels", "samples,x,y"),
        ("samples,y,x,channels", "samples,y,x"),
    ]
    .into_iter()
    .enumerate()
    {
        let meta =
            pair(place.path(), inputs, targets, false).write(place.path().join(k.to_string())).unwrap();
        assert_eq!((meta.samples, meta.target_domain), (7, None));
        let axes = meta.domain.grid().unwrap().axes.iter().map(|axis| axis.points).collect::<Vec<_>>();
        assert_eq!(axes, [vec![5], vec![5, 3], vec![3, 5]][k]);
    }
    // An axis of length 1 is one channel.
    let import = pair(place.path(), "samples,x", "samples,x", false);
    write_values(&import.files[1], &[7, 1, 5], false, &[0.5; 35]);
    let meta = import.write(place.path().join("one")).unwrap();
    assert_eq!((meta.domain.to_string(), meta.targets), ("5 points, x closed".into(), words("u")));
}

#[test]
fn what_is_ambiguous_is_refused_with_its_readings() {
    let place = tempfile::tempdir().unwrap();
    let import = pair(place.path(), "samples,x,y", "samples,x,y", false);
    let error = message(&import, place.path());
    let lines: Vec<_> = error.lines().collect();
    assert_eq!(
        lines,
        [
            "`a` of shape [7, 5, 3] and `u` of shape [7, 5, 3]: their axes can be read in several ways; say which:",
            "  --layout samples,y,x         7 samples on 5 × 3 points",
            "  --layout samples,x,channels  7 samples on 5 points with 3 channels",
            "  --layout samples,channels,x  7 samples on 3 points with 5 channels",
            "  --layout y,x,samples         3 samples on 7 × 5 points",
        ]
    );
    // One of the two layouts tells the other.
    let half = Import { target_layout: words("samples,x,y"), ..import.clone() };
    let meta = half.write(place.path().join("half")).unwrap();
    assert_eq!((meta.domain.to_string(), meta.target_domain), ("5 × 3 points, x and y closed".into(), None));

    let course = pair(place.path(), "samples,x", "samples,time,x", false);
    let error = message(&course, place.path());
    for reading in [
        "--target-layout samples,time,x      7 samples on 5 points at 2 times",
        "--target-layout samples,channels,x  7 samples on 5 points with 2 channels",
    ] {
        assert!(error.contains(reading), "{error}");
    }
    let grids = pair(place.path(), "samples,x", "samples,y", false);
    let error = message(&grids, place.path());
    assert!(error.contains("--input-layout samples,channels  7 samples of 5 parameters"), "{error}");
    assert!(error.contains("--input-layout samples,x         7 samples on 5 points"), "{error}");

    // Samples last: arrays that agree there alone.
    write_values(&grids.files[0], &[5, 7], false, &[0.0; 35]);
    write_values(&grids.files[1], &[3, 7], false, &[0.0; 21]);
    let error = message(&grids, place.path());
    assert!(error.contains("--layout x,samples  7 samples on 5 points"), "{error}");
    let last = Import { layout: words("x,samples"), ..grids };
    let meta = last.write(place.path().join("last")).unwrap();
    assert_eq!((meta.samples, meta.target_domain().to_string()), (7, "3 points, x closed".into()));
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 4);
}

#[test]
fn layouts_that_do_not_fit_name_file_and_shape() {
    let place = tempfile::tempdir().unwrap();
    let import = pair(place.path(), "samples,x,y", "samples,x,y", false);
    let with = |layout: &str| message(&Import { layout: words(layout), ..import.clone() }, place.path());
    assert!(with("x,y").contains("no axis is called `samples`"));
    assert!(with("samples,x").contains("expected an array of 2 axes, found `a` of shape [7, 5, 3]"));
    assert!(with("samples,time,x").contains("time is an axis of targets"), "{}", with("samples,time,x"));
    let mixed =
        Import { input_layout: words("x,y,samples"), target_layout: words("samples,x,y"), ..import.clone() };
    let error = message(&mixed, place.path());
    assert!(error.contains("found 3 with the axes x,y,samples and 7 with the axes samples,x,y"), "{error}");
    // A second file of another size, and one of other axes.
    let other = place.path().join("other");
    fs::create_dir(&other).unwrap();
    let second = other.join("u.npy");
    write_values(&second, &[2, 5, 4], false, &[0.0; 40]);
    let mut files = import.files.clone();
    files.push(second);
    let import = Import { files, layout: words("samples,x,y"), ..import };
    let error = message(&import, place.path());
    assert!(error.contains("u.npy: u: expected 5 × 3 points, as the arrays before,"), "{error}");
    assert!(error.ends_with("found shape [2, 5, 4]"), "{error}");
    write_values(&import.files[2], &[2, 15], false, &[0.0; 30]);
    let error = message(&import, place.path());
    assert!(error.ends_with("u: expected 3 axes, as the first file has, found shape [2, 15]"), "{error}");
}

#[test]
fn variables_lie_side_by_side_as_channels() {
    let place = tempfile::tempdir().unwrap();
    let mut import = pair(place.path(), "samples,x,channels", "samples,x", false);
    let third = place.path().join("b.npy");
    write_npy(&third, "x,samples", &SIZES, true);
    import.files.push(third);
    let wrong =
        Import { variables: variables("b,a", "u"), layout: words("samples,x,channels"), ..import.clone() };
    assert!(message(&wrong, place.path()).contains("a.npy: a: expected 7 points, as the arrays before,"));
    write_npy(&import.files[2], "samples,x", &SIZES, true);
    for memory in [0, 60] {
        let import = Import { variables: variables("b,a", "u"), memory, ..import.clone() };
        let folder = place.path().join(memory.to_string());
        let meta = import.write(&folder).unwrap();
        assert_eq!(meta.inputs, words("b,a0,a1"));
        let sample = Dataset::open(&folder).unwrap().sample(5).unwrap();
        assert_eq!(sample.input.shape, [5, 3]);
        assert_eq!(sample.input.values[6..9], [50_200.0, 50_200.0, 50_201.0]);
    }
    let twice = Import { variables: variables("u,u", "u"), ..import };
    assert!(message(&twice, place.path()).contains("two have this name"));
}

#[test]
fn a_given_split_is_kept() {
    let place = tempfile::tempdir().unwrap();
    let whole = pair(place.path(), "samples,x", "samples,x", false);
    let plain = place.path().join("plain");
    whole.write(&plain).unwrap();
    // The same samples in three pieces, as variables and as files.
    let row = |sample: usize| (0..5).map(move |x| (sample * 10_000 + x * 100) as f32);
    let mut files = whole.files.clone();
    for (name, samples) in [("train", 0..4), ("vali", 4..5), ("test", 5..7)] {
        for variable in ["f", "u"] {
            let path = place.path().join(format!("{variable}_{name}.npy"));
            write_values(
                &path,
                &[samples.len(), 5],
                false,
                &samples.clone().flat_map(row).collect::<Vec<_>>(),
            );
            files.push(path);
        }
    }
    let part = |name: &str| {
        let variables = variables(&format!("f_{name}"), &format!("u_{name}"));
        Part { files: vec![], variables }
    };
    let import = Import {
        variables: part("train").variables,
        validation: Some(part("vali")),
        test: Some(part("test")),
        files: files.clone(),
        ..Import::default()
    };
    let folder = place.path().join("variables");
    let meta = import.write(&folder).unwrap();
    assert_eq!(meta.split, Some(Parts { train: [0, 4], validation: [4, 5], test: [5, 7] }));
    assert_eq!((arrays(&folder), meta.inputs), (arrays(&plain), words("f_train")));

    let far = place.path().join("far");
    fs::create_dir(&far).unwrap();
    for (from, to) in [("f_test", "f_train"), ("u_test", "u_train")] {
        fs::copy(place.path().join(format!("{from}.npy")), far.join(format!("{to}.npy"))).unwrap();
    }
    let of_test = vec![far.join("f_train.npy"), far.join("u_train.npy")];
    let import = Import {
        validation: None,
        test: Some(Part { files: of_test, variables: Default::default() }),
        files: files[2..4].to_vec(),
        ..import
    };
    let folder = place.path().join("files");
    let meta = import.write(&folder).unwrap();
    assert_eq!(meta.split, Some(Parts { train: [0, 4], validation: [4, 4], test: [4, 6] }));
    let dataset = Dataset::open(&folder).unwrap();
    assert_eq!(dataset.sample(5).unwrap().input.values, row(6).collect::<Vec<_>>());

    let bare = Import { test: Some(Part::default()), ..whole.clone() };
    assert!(message(&bare, place.path()).contains("variables or files of their own"));
    let short = Import {
        test: Some(Part { files: vec![], variables: variables("f_test", "u_vali") }),
        files,
        ..whole
    };
    assert!(
        message(&short, place.path()).contains("found 9 and 8 along the first axes"),
        "{}",
        message(&short, place.path())
    );
}

#[test]
fn coordinates_tell_origin_and_length() {
    let place = tempfile::tempdir().unwrap();
    let mut import = pair(place.path(), "samples,x,y", "samples,x,y", false);
    let [x, y] = ["xs.npy", "ys.npy"].map(|name| place.path().join(name));
    // A vector of MATLAB, and a sum of f32.
    write_values(&x, &[1, 5], false, &[-1.0, -0.5, 0.0, 0.5, 1.0]);
    write_values(&y, &[3], false, &[0.1, 0.1 + 0.2, 0.1 + 0.2 + 0.2]);
    import.files.extend([x.clone(), y]);
    let said =
        |text: &str| text.split_once('=').map(|(axis, name)| (axis.to_string(), name.to_string())).unwrap();
    let import = Import {
        layout: words("samples,x,y"),
        coordinates: vec![said("x=xs"), said("y=ys")],
        periodic: words("y"),
        ..import
    };
    let meta = import.write(place.path().join("d")).unwrap();
    let axes = &meta.domain.grid().unwrap().axes;
    assert_eq!(axes[0], Axis { name: "x".into(), points: 5, origin: -1.0, length: 2.0, periodic: false });
    assert!((axes[1].origin - 0.1).abs() < 1e-7 && (axes[1].length - 0.6).abs() < 1e-6 && axes[1].periodic);

    let told = Import {
        coordinates: vec![],
        lengths: vec![("x".into(), 2.0)],
        origins: vec![("x".into(), -1.0)],
        ..import.clone()
    };
    let meta = told.write(place.path().join("told")).unwrap();
    assert_eq!(meta.domain.grid().unwrap().axes[0], axes[0]);
    let both = Import { lengths: vec![("x".into(), 2.0)], ..import.clone() };
    assert!(
        message(&both, place.path()).contains("one variable of coordinates, or by --origin and --length")
    );
    let negative = Import { lengths: vec![("x".into(), -2.0)], coordinates: vec![], ..import.clone() };
    assert!(message(&negative, place.path()).contains("the length is positive"));

    write_values(&x, &[5], false, &[-1.0, -0.5, 0.001, 0.5, 1.0]);
    let error = message(&import, place.path());
    assert!(
        error.contains("expected a uniform grid, found 0.001") && error.contains("--points xs"),
        "{error}"
    );
    write_values(&x, &[5], false, &[1.0, 0.5, 0.0, -0.5, -1.0]);
    assert!(message(&import, place.path()).contains("expected ascending coordinates"));
    write_values(&x, &[4], false, &[0.0, 1.0, 2.0, 3.0]);
    assert!(message(&import, place.path()).contains("expected 5 coordinates"));
}

#[test]
fn parameters_are_the_same_everywhere() {
    let place = tempfile::tempdir().unwrap();
    let import = pair(place.path(), "samples,channels", "samples,x,y", true);
    for (k, memory) in [0, 8].into_iter().enumerate() {
        let import = Import {
            input_layout: words("samples,channels"),
            target_layout: words("samples,x,y"),
            memory,
            ..import.clone()
        };
        let folder = place.path().join(k.to_string());
        let meta = import.write(&folder).unwrap();
        assert_eq!((meta.target_domain, meta.inputs), (None, words("a0,a1")));
        let sample = Dataset::open(&folder).unwrap().sample(4).unwrap();
        assert_eq!(sample.input.shape, [5, 3, 2]);
        assert!(sample.input.values.chunks(2).all(|point| point == [40_000.0, 40_001.0]));
    }
    let targets = Import { layout: words("samples,channels"), variables: variables("a", "a"), ..import };
    assert!(message(&targets, place.path()).contains("targets need an axis of a grid or of points"));
}

#[test]
fn inputs_and_targets_lie_on_different_grids() {
    let place = tempfile::tempdir().unwrap();
    let import = pair(place.path(), "samples,x", "samples,x,y", false);
    let import = Import { input_layout: words("samples,x"), target_layout: words("samples,x,y"), ..import };
    let folder = place.path().join("d");
    let meta = Import { periodic: words("x"), ..import.clone() }.write(&folder).unwrap();
    assert_eq!(meta.domain.to_string(), "5 points, x periodic");
    assert_eq!(meta.target_domain.unwrap().to_string(), "5 × 3 points, x periodic, y closed");
    let dataset = Dataset::open(&folder).unwrap();
    assert_eq!((dataset.input_shape(), dataset.target_shape()), (vec![5, 1], vec![5, 3, 1]));
    let error = message(&Import { subsample: 4, ..import }, place.path());
    assert!(error.contains("5 × 3 points") && error.contains("sizes that work: 5, 3"), "{error}");
}
