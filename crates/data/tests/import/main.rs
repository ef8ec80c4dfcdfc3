//! Files of others as dataset folders, and dataset folders that are not what they say.

mod layouts;
#[path = "../pickle/mod.rs"]
mod pickle;
mod points;

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use galerkin_data::generate::write_dataset;
use galerkin_data::import::{Import, Part, Variables};
use galerkin_data::pde::{Burgers, Problem};
use galerkin_data::split::Parts;
use galerkin_data::{Dataset, Error, io};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/mat").join(name)
}

fn import(files: &[&str], subsample: usize) -> Import {
    Import { files: files.iter().map(|file| fixture(file)).collect(), subsample, ..Import::default() }
}

fn words(text: &str) -> Vec<String> {
    text.split(',').map(String::from).collect()
}

fn variables(inputs: &str, targets: &str) -> Variables {
    Variables { inputs: words(inputs), targets: words(targets) }
}

/// A `.npy` file with axes in the order of a layout and the lengths of `sizes`, in which a value tells where it belongs: a sum over the axes
/// of index · weight. In column-major order if wanted.
fn write_npy(path: &Path, layout: &str, sizes: &[(&str, usize)], column_major: bool) {
    let shape: Vec<usize> =
        layout.split(',').map(|axis| sizes.iter().find(|(name, _)| *name == axis).unwrap().1).collect();
    let mut order: Vec<usize> = (0..shape.len()).collect();
    if column_major {
        order.reverse();
    }
    let axes: Vec<&str> = layout.split(',').collect();
    let value = |place: usize| {
        let (mut rest, mut sum) = (place, 0.0);
        for axis in order.iter().rev() {
            sum += (rest % shape[*axis]) as f32 * weight(axes[*axis]);
            rest /= shape[*axis];
        }
        sum
    };
    let values: Vec<f32> = (0..shape.iter().product()).map(value).collect();
    write_values(path, &shape, column_major, &values);
}

/// Steps along the axes; sums of few steps are whole numbers that f32 holds.
fn weight(axis: &str) -> f32 {
    match axis {
        "samples" => 10_000.0,
        "time" => 1_000.0,
        "x" | "points" => 100.0,
        "y" => 10.0,
        "channels" => 1.0,
        other => panic!("no weight for {other}"),
    }
}

fn write_values(path: &Path, shape: &[usize], column_major: bool, values: &[f32]) {
    assert_eq!(shape.iter().product::<usize>(), values.len());
    let mut bytes = io::npy::header(shape);
    if column_major {
        let text = String::from_utf8(bytes[10..].to_vec()).unwrap();
        let text = text.replace("False", "True").replace('\n', " \n");
        bytes.truncate(10);
        bytes.extend(text.as_bytes());
    }
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    fs::write(path, bytes).unwrap();
}

/// The bytes of both arrays of a dataset.
fn arrays(folder: &Path) -> [Vec<u8>; 2] {
    ["inputs.npy", "targets.npy"].map(|name| fs::read(folder.join(name)).unwrap())
}

#[test]
fn published_files_need_no_names() {
    let place = tempfile::tempdir().unwrap();
    for (file, inputs, targets, kind, shape) in [
        ("burgers_v5_compressed.mat", "a", "u", true, vec![4, 16, 1]),
        ("burgers_v73.mat", "a", "u", true, vec![4, 16, 1]),
        ("darcy_v5_narrow.mat", "coeff", "sol", false, vec![3, 7, 7, 1]),
        ("darcy_v73_chunked.mat", "coeff", "sol", false, vec![3, 7, 7, 1]),
    ] {
        let folder = place.path().join(file);
        let meta = import(&[file], 1).write(&folder).unwrap();
        let grid = meta.domain.grid().unwrap();
        assert_eq!((grid.axes[0].periodic, &grid.points()[..]), (kind, &shape[1..shape.len() - 1]));
        let dataset = Dataset::open(&folder).unwrap();
        assert_eq!(dataset.meta(), Some(&meta));
        let source = io::open(fixture(file)).unwrap();
        for (index, sample) in (0..dataset.len()).map(|index| (index, dataset.sample(index).unwrap())) {
            let len = sample.input.values.len();
            assert_eq!(sample.input.shape, shape[1..]);
            assert_eq!(sample.input.values, source.read(inputs).unwrap().values[index * len..][..len]);
            assert_eq!(sample.target.values, source.read(targets).unwrap().values[index * len..][..len]);
        }
        // Anyone reads the arrays: the header is numpy's.
        let written = io::open(folder.join("inputs.npy")).unwrap();
        assert_eq!(written.read("inputs").unwrap().shape, shape);
        assert_eq!(
            fs::read(folder.join("inputs.npy")).unwrap().len() % 64,
            shape.iter().product::<usize>() * 4 % 64
        );
    }
    // Nothing temporary is left.
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 4);
}

/// Files like those that come with the package neuraloperator, as PyTorch lays them out: the samples are the fastest axis and part of more.
#[test]
fn files_of_neuraloperator_need_no_names() {
    let place = tempfile::tempdir().unwrap();
    let write = |name: &str, tensors: &[(&str, &[i64])]| {
        let mut pickle = pickle::Pickle::new().raw(b"}");
        let mut storages = Vec::new();
        let keys = ["0", "1", "2"];
        for ((name, shape), key) in tensors.iter().zip(keys) {
            // Strides of a column-major array of five samples more.
            let mut len = 1;
            let strides: Vec<i64> = (0..shape.len())
                .map(|axis| {
                    let stride = len;
                    len *= shape[axis] + if axis == 0 { 5 } else { 0 };
                    stride
                })
                .collect();
            let tensor =
                pickle::Tensor { storage: "FloatStorage", key, len, offset: 2, shape, strides: &strides };
            pickle = pickle.text(name).tensor(&tensor).raw(b"s");
            storages.push((key, (0..len).flat_map(|v| (v as f32).to_le_bytes()).collect()));
        }
        let path = place.path().join(name);
        fs::write(&path, pickle::archive(&pickle.raw(b".").0, &storages)).unwrap();
        path
    };
    let import = |files: Vec<PathBuf>, test: Option<PathBuf>| {
        let test = test.map(|file| Part { files: vec![file], variables: Variables::default() });
        Import { files, test, ..Import::default() }
    };
    let train = write("train.pt", &[("x", &[4, 3, 3]), ("y", &[4, 3, 3])]);
    let test = write("test.pt", &[("x", &[2, 3, 3]), ("y", &[2, 3, 3])]);
    let folder = place.path().join("darcy");
    let meta = import(vec![train.clone()], Some(test)).write(&folder).unwrap();
    assert_eq!((meta.domain.to_string(), meta.target_domain), ("3 × 3 points, y and x closed".into(), None));
    assert_eq!(meta.split, Some(Parts { train: [0, 4], validation: [4, 4], test: [4, 6] }));
    let dataset = Dataset::open(&folder).unwrap();
    // Offset 2, sample 1; steps of 9 and of 27 from point to point.
    let expected = [3.0, 30.0, 57.0, 12.0, 39.0, 66.0, 21.0, 48.0, 75.0];
    assert_eq!(dataset.sample(1).unwrap().input.values, expected);
    let last = dataset.sample(5).unwrap().target.values;
    assert_eq!((last[0], last[8]), (3.0, 3.0 + 2.0 * 7.0 + 2.0 * 21.0));

    let course = write("course.pt", &[("x", &[4, 3]), ("y", &[4, 2, 3]), ("visc", &[1, 1])]);
    let folder = place.path().join("burgers");
    let meta = import(vec![course], None).write(&folder).unwrap();
    assert_eq!((meta.domain.to_string(), meta.target_domain), ("3 points, x periodic".into(), None));
    assert_eq!(meta.time.map(|time| time.points), Some(2));
    let target = Dataset::open(&folder).unwrap().sample(3).unwrap().target;
    assert_eq!((target.shape, target.values), (vec![2, 3, 1], vec![5.0, 23.0, 41.0, 14.0, 32.0, 50.0]));

    // The same names in a file that is another one.
    let other = write("other.pt", &[("x", &[4, 3, 3]), ("y", &[4, 3, 3]), ("z", &[2])]);
    let error = import(vec![other], None).write(place.path().join("refused")).unwrap_err().to_string();
    assert!(error.contains("--inputs NAME; the files have x [4, 3, 3], y [4, 3, 3], z [2]"), "{error}");
}

#[test]
fn imported_grids_can_be_coarser_and_files_follow_each_other() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("both");
    import(&["darcy_v5.mat", "darcy_v73_chunked.mat"], 3).write(&folder).unwrap();
    let dataset = Dataset::open(&folder).unwrap();
    assert_eq!((dataset.len(), dataset.grid().unwrap().points()), (6, vec![3, 3]));
    assert_eq!(dataset.sample(1).unwrap(), dataset.sample(4).unwrap());
    let whole = place.path().join("whole");
    import(&["darcy_v5.mat"], 1).write(&whole).unwrap();
    let coarse = Dataset::open(&whole).unwrap().subsample(3).unwrap();
    assert_eq!(dataset.sample(2).unwrap(), coarse.sample(2).unwrap());
}

#[test]
fn other_names_are_told() {
    let place = tempfile::tempdir().unwrap();
    let named = Import {
        files: vec![fixture("burgers.a.npy"), fixture("burgers.u.npy")],
        variables: variables("burgers.a", "burgers.u"),
        periodic: words("x"),
        ..Import::default()
    };
    let folder = place.path().join("named");
    let meta = named.write(&folder).unwrap();
    assert_eq!((meta.inputs, meta.domain.to_string()), (words("burgers.a"), "16 points, x periodic".into()));
    // The published file is the same dataset under other names.
    let known = place.path().join("known");
    import(&["burgers_v5.mat"], 1).write(&known).unwrap();
    assert_eq!(arrays(&folder), arrays(&known));

    let message = |import: Import| import.write(place.path().join("refused")).unwrap_err().to_string();
    let unknown = message(Import { variables: Variables::default(), periodic: vec![], ..named.clone() });
    assert!(
        unknown.contains("--inputs NAME; the files have burgers.a [4, 16], burgers.u [4, 16]"),
        "{unknown}"
    );
    let missing = Import { variables: variables("x", "sol"), ..import(&["darcy_v5.mat"], 1) };
    let missing = message(missing);
    assert!(missing.ends_with("darcy_v5.mat: no variable `x`; there are coeff, sol"), "{missing}");
    let rank = message(Import { layout: words("samples,y,x"), ..named.clone() });
    assert!(rank.contains("expected an array of 3 axes, found `burgers.a` of shape [4, 16]"), "{rank}");
    let stride = message(import(&["darcy_v5.mat"], 4));
    assert!(stride.ends_with("to every 4th point; sizes that work: 7, 4, 3, 2"), "{stride}");
    let axis = message(Import { periodic: words("y"), ..named.clone() });
    assert_eq!(axis, "--periodic y: no axis has this name; there are x");
    assert!(named.write(&folder).unwrap_err().to_string().ends_with("exists already"));
    assert!(message(Import::default()).ends_with("no file was named"));
    // A refusal leaves nothing behind.
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
}

/// What the generator writes is opened like what is imported.
#[test]
fn generated_folders_are_opened_and_verified() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("generated");
    let problem = Problem::Burgers(Burgers { points: 64, ..Burgers::default() });
    let meta = write_dataset(&folder, &problem, 5, 3, |_| ControlFlow::Continue(())).unwrap();
    let dataset = Dataset::open(&folder).unwrap();
    assert_eq!((dataset.meta(), dataset.len(), dataset.grid().unwrap().points()), (Some(&meta), 3, vec![64]));
    dataset.check_finite().unwrap();
    let sample = problem.sample(5, 2).unwrap();
    assert_eq!(dataset.sample(2).unwrap().target.values, sample.target);
}

/// An import that fails half-way: the second file is damaged where only reading its values shows it.
#[test]
fn a_failed_import_leaves_nothing_and_touches_nothing() {
    let place = tempfile::tempdir().unwrap();
    let damaged = place.path().join("damaged.mat");
    let mut bytes = fs::read(fixture("darcy_v5_compressed.mat")).unwrap();
    // Inside the first compressed variable, far behind its name.
    bytes[136 + 200] ^= 0xff;
    fs::write(&damaged, bytes).unwrap();
    let begun = place.path().join("darcy.partial");
    fs::create_dir(&begun).unwrap();
    let files = vec![fixture("darcy_v5.mat"), damaged];
    let error =
        Import { files, ..Import::default() }.write(place.path().join("darcy")).unwrap_err().to_string();
    assert!(error.contains("damaged.mat"), "{error}");
    let mut left: Vec<_> =
        fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["damaged.mat", "darcy.partial"]);
}

#[test]
fn folders_that_are_not_what_they_say() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("burgers");
    import(&["burgers_v5.mat"], 1).write(&folder).unwrap();
    let message = || Dataset::open(&folder).unwrap_err().to_string();

    let inputs = folder.join("inputs.npy");
    let good = fs::read(&inputs).unwrap();
    let mut changed = good.clone();
    *changed.last_mut().unwrap() ^= 1;
    fs::write(&inputs, &changed).unwrap();
    assert!(matches!(Dataset::open(&folder).unwrap_err(), Error::Checksum { path, .. } if path == inputs));
    fs::write(&inputs, &good).unwrap();
    let dataset = Dataset::open(&folder).unwrap();

    // A file that shrinks while it is open: the samples that are gone are errors.
    fs::write(&inputs, &good[..good.len() - 8]).unwrap();
    assert!(dataset.sample(0).is_ok());
    assert!(matches!(dataset.sample(3).unwrap_err(), Error::Io { .. }));
    assert!(
        message()
            .contains("inputs.npy: values: expected 256 bytes for shape [4, 16, 1] of float32, found 248")
    );
    fs::write(&inputs, &good).unwrap();

    let meta = folder.join("meta.toml");
    let text = fs::read_to_string(&meta).unwrap();
    fs::write(&meta, text.replace("samples = 4", "samples = 5")).unwrap();
    assert!(message().ends_with("expected shape [5, 16, 1], found [4, 16, 1]"), "{}", message());
    fs::write(&meta, "samples = ").unwrap();
    assert!(
        message().contains("meta.toml: file: expected the description of a dataset, found TOML"),
        "{}",
        message()
    );
    fs::remove_file(&meta).unwrap();
    assert!(message().contains("meta.toml"), "{}", message());
}
