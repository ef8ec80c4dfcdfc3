use crate::relative_error;
use galerkin_data::clock::DatasetClock;
use galerkin_data::generate::{checksum, write_dataset};
use galerkin_data::pde::{self, Burgers, Coefficient, Darcy, Problem, Sample};
use galerkin_data::random_field::FieldLaw;
use galerkin_data::{Dataset, Error, Meta};
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

fn problems() -> [Problem; 2] {
    let initial = FieldLaw { modes: 128, ..FieldLaw::BURGERS };
    let field = FieldLaw { modes: 29, ..FieldLaw::DARCY };
    [
        Problem::Burgers(Burgers {
            points: 64,
            viscosity: 0.05,
            tolerance: 1e-6,
            initial,
            ..Burgers::default()
        }),
        Problem::Darcy(Darcy { points: 29, field, ..Darcy::default() }),
    ]
}

fn samples(problem: &Problem, count: u32) -> Vec<Sample> {
    let mut samples = Vec::new();
    pde::generate(problem, 9, 0..count, |index, sample| {
        assert_eq!(index as usize, samples.len());
        samples.push(sample);
        Ok(())
    })
    .unwrap();
    samples
}

/// On its own grid a problem makes the input of the sample, to the bit; on a grid of which that is every second point the same values there, up to the
/// roundings of another transform, but where a coefficient jumps.
#[test]
fn inputs_are_made_on_any_grid() {
    for problem in problems() {
        let (grid, sample) = (problem.grid(), problem.sample(9, 3).unwrap());
        let input = |points: &[usize]| problem.equation().input(9, 3, points).unwrap().unwrap();
        let own: Vec<f32> = input(&grid.points()).iter().map(|v| *v as f32).collect();
        assert_eq!(own, sample.input);
        let fine: Vec<usize> =
            grid.axes.iter().map(|axis| 2 * axis.intervals() + usize::from(!axis.periodic)).collect();
        let values = input(&fine);
        let side = fine[0];
        let kept: Vec<f64> = match fine.len() {
            1 => values.iter().copied().step_by(2).collect(),
            _ => (0..values.len())
                .filter(|at| (at / side).is_multiple_of(2) && (at % side).is_multiple_of(2))
                .map(|at| values[at])
                .collect(),
        };
        assert_eq!(kept.len(), own.len());
        let largest = own.iter().fold(0.0f64, |m, v| m.max(f64::from(v.abs())));
        let off = kept.iter().zip(&own).filter(|(a, b)| (*a - f64::from(**b)).abs() > 1e-6 * largest);
        // A field within a rounding of the cut may fall on its other side.
        assert!(off.count() <= if fine.len() == 1 { 0 } else { 1 });
        // And between the points of its own grid.
        let odd: Vec<usize> = grid.axes.iter().map(|axis| axis.points + 6).collect();
        assert_eq!(input(&odd).len(), odd.iter().product::<usize>());
    }
}

#[test]
fn samples_have_the_same_bits_with_any_number_of_threads() {
    for problem in problems() {
        let one_by_one: Vec<Sample> = (0..40).map(|index| problem.sample(9, index).unwrap()).collect();
        for threads in [1, 2, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            assert_eq!(pool.install(|| samples(&problem, 40)), one_by_one, "{threads} threads");
        }
        assert_ne!(one_by_one[0], one_by_one[1]);
        assert_ne!(problem.sample(10, 0).unwrap(), one_by_one[0]);
    }
}

#[test]
fn a_coefficient_is_what_its_law_says() {
    let [_, Problem::Darcy(darcy)] = problems() else { unreachable!() };
    let values = Problem::Darcy(darcy.clone()).sample(9, 0).unwrap().input;
    assert!(values.iter().all(|&a| a == 12.0 || a == 3.0));
    assert!(values.contains(&12.0) && values.contains(&3.0));
    let lognormal = Coefficient::Lognormal { location: 1.0, scale: 2.0 };
    let smooth = Problem::Darcy(Darcy { coefficient: lognormal, ..darcy }).sample(9, 0).unwrap();
    // The same field stands behind both: its sign is that of log a − 1.
    assert!(values.iter().zip(&smooth.input).all(|(two, a)| (*two == 12.0) == (a.ln() >= 1.0)));
}

fn write(folder: &Path, problem: &Problem, count: u32, stop: &[u32]) -> Result<Meta, Error> {
    write_dataset(folder, problem, 9, count, |done| {
        if stop.contains(&done) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

/// Of all files but the clock, which no two datasets have in common.
fn bytes(folder: &Path) -> Vec<Vec<u8>> {
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["clock.json", "inputs.npy", "meta.toml", "targets.npy"]);
    names[1..].iter().map(|name| fs::read(folder.join(name)).unwrap()).collect()
}

#[test]
fn an_interrupted_dataset_is_resumed_to_the_same_bytes() {
    for problem in problems() {
        let temporary = tempfile::tempdir().unwrap();
        let [whole, pieces] = ["whole", "pieces"].map(|name| temporary.path().join(name));
        write(&whole, &problem, 40, &[]).unwrap();
        let record = temporary.path().join("pieces.partial/progress.toml");
        let mut earlier = None;
        for stop in [1, 33] {
            match write(&pieces, &problem, 40, &[stop]) {
                Err(Error::Stopped { complete, samples: 40 }) => assert_eq!(complete, stop),
                other => panic!("{other:?}"),
            }
            // A crash after the record leaves samples nobody vouches for.
            let torn = temporary.path().join("pieces.partial/inputs.npy");
            let mut content = fs::read(&torn).unwrap();
            content.extend([0xff; 77]);
            fs::write(&torn, content).unwrap();
            let clock = seconds(&fs::read_to_string(&record).unwrap());
            assert!(earlier.is_none_or(|earlier| earlier < clock), "{earlier:?}, {clock}");
            earlier = Some(clock);
        }
        assert!(!pieces.exists());
        write(&pieces, &problem, 40, &[]).unwrap();
        let clock = DatasetClock::read(&pieces).unwrap();
        assert!(clock.spent.seconds > earlier.unwrap() && clock.samples == 40, "{earlier:?}, {clock:?}");
        assert!(!temporary.path().join("pieces.partial").exists());
        assert_eq!(bytes(&pieces), bytes(&whole));
    }
}

/// Of the clock in a record of progress.
fn seconds(record: &str) -> f64 {
    let record: toml::Table = toml::from_str(record).unwrap();
    record["clock"]["seconds"].as_float().unwrap()
}

/// A folder begun by a version without a clock: the clock counts the samples that it saw.
#[test]
fn a_clock_counts_the_samples_of_its_time() {
    let [problem, _] = problems();
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("data");
    write(&folder, &problem, 8, &[3]).unwrap_err();
    let path = temporary.path().join("data.partial/progress.toml");
    let mut record: toml::Table = toml::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(record.remove("clock").unwrap()["samples"].as_integer(), Some(3));
    fs::write(&path, record.to_string()).unwrap();
    write(&folder, &problem, 8, &[]).unwrap();
    assert_eq!(DatasetClock::read(&folder).unwrap().samples, 5);

    // Not under the checksums of the dataset, and not needed.
    for damage in ["{", "{\"seconds\": -"] {
        fs::write(folder.join("clock.json"), damage).unwrap();
        assert_eq!(DatasetClock::read(&folder), None);
        Dataset::open(&folder).unwrap();
    }
    fs::remove_file(folder.join("clock.json")).unwrap();
    assert_eq!(DatasetClock::read(&folder), None);
    Dataset::open(&folder).unwrap();
}

#[test]
fn files_hold_the_samples_and_meta_tells_about_them() {
    let [burgers, darcy] = problems();
    let temporary = tempfile::tempdir().unwrap();
    for (problem, shape) in [(burgers, "(5, 64, 1)"), (darcy, "(5, 29, 29, 1)")] {
        let folder = temporary.path().join(format!("{}", problem.grid().axes.len()));
        let meta = write(&folder, &problem, 5, &[]).unwrap();
        let text = fs::read_to_string(folder.join("meta.toml")).unwrap();
        assert_eq!(Meta::parse(&text).unwrap(), meta);
        assert_eq!(meta.problem, Some(problem.clone()));
        assert_eq!((meta.samples, meta.seed), (5, Some(9)));
        let file = fs::read(folder.join("targets.npy")).unwrap();
        assert_eq!(meta.checksums["targets.npy"], checksum(&folder.join("targets.npy")).unwrap());
        let data: Vec<u8> =
            samples(&problem, 5).iter().flat_map(|s| &s.target).flat_map(|v| v.to_le_bytes()).collect();
        assert!(file.ends_with(&data));
        let header = &file[..file.len() - data.len()];
        assert_eq!(header.len() % 64, 0);
        assert!(String::from_utf8_lossy(header).contains(shape), "{header:?}");
    }
}

#[test]
fn more_samples_begin_with_the_same_ones() {
    let [problem, _] = problems();
    assert_eq!(samples(&problem, 70)[..40], samples(&problem, 40));
}

#[test]
fn other_settings_do_not_continue_a_folder() {
    let [problem, other] = problems();
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("data");
    write(&folder, &problem, 8, &[3]).unwrap_err();
    for (problem, seed, count, word) in
        [(&other, 9, 8, "problem"), (&problem, 10, 8, "seed"), (&problem, 9, 9, "samples")]
    {
        let error = write_dataset(&folder, problem, seed, count, |_| ControlFlow::Continue(())).unwrap_err();
        assert!(matches!(error, Error::Begun { .. }), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
    fs::write(temporary.path().join("data.partial/inputs.npy"), [0; 10]).unwrap();
    let error = write(&folder, &problem, 8, &[]).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");

    let whole = temporary.path().join("whole");
    write(&whole, &problem, 1, &[]).unwrap();
    assert!(matches!(write(&whole, &problem, 1, &[]), Err(Error::Exists { .. })));
    let seed = u64::MAX;
    let error =
        write_dataset(&temporary.path().join("seed"), &problem, seed, 1, |_| ControlFlow::Continue(()));
    assert!(matches!(error, Err(Error::Setting { .. })));
}

/// CRC-32 of "123456789", the check value of the polynomial's definition.
#[test]
fn checksums_are_those_of_zip_and_gzip() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("digits");
    fs::write(&path, "123456789").unwrap();
    assert_eq!(checksum(&path).unwrap(), "cbf43926");
}

#[test]
fn impossible_problems_are_errors_that_name_the_sample() {
    let [Problem::Burgers(burgers), Problem::Darcy(darcy)] = problems() else { unreachable!() };
    for problem in [
        Problem::Burgers(Burgers { points: 0, ..burgers.clone() }),
        Problem::Burgers(Burgers { points: usize::MAX, ..burgers.clone() }),
        Problem::Burgers(Burgers { viscosity: -1.0, ..burgers }),
        Problem::Darcy(Darcy { points: usize::MAX, ..darcy.clone() }),
        Problem::Darcy(Darcy { field: FieldLaw { modes: usize::MAX, ..darcy.field }, ..darcy.clone() }),
        Problem::Darcy(Darcy { source: f64::NAN, ..darcy }),
    ] {
        let error = problem.sample(9, 4).unwrap_err();
        assert!(error.to_string().contains("sample 4"), "{error}");
    }
}

/// On the grid of the input a problem's solver with its own tolerance is what made the targets; to other grids it takes their points or what lies between.
#[test]
fn a_solver_answers_on_any_grid() {
    let [burgers, darcy] = problems();
    for (problem, tolerance, from, to) in [(burgers, 1e-8, 64, 256), (darcy, 1e-10, 29, 57)] {
        let (equation, axes) = (problem.equation(), problem.grid().axes.len());
        let grid = |n: usize| vec![n; axes];
        let inputs: Vec<Vec<f64>> =
            samples(&problem, 3).iter().map(|s| s.input.iter().map(|v| f64::from(*v)).collect()).collect();
        let solve = |to: usize, tolerance| {
            let solver = equation.solver(&grid(from), &grid(to), tolerance).unwrap().unwrap();
            pde::solve_all(&solver, &inputs).unwrap()
        };
        let same = solve(from, tolerance);
        for (input, solved) in inputs.iter().zip(&same) {
            assert_eq!(*solved, equation.solve(input, &grid(from)).unwrap().unwrap());
        }
        let fine = solve(to, tolerance);
        let rough = solve(from, 1e-3);
        for ((same, fine), rough) in same.iter().zip(&fine).zip(&rough) {
            let kept: Vec<f64> = (0..from.pow(axes as u32))
                .map(|at| match axes {
                    1 => fine[at * to / from],
                    _ => fine[2 * (at / from) * to + 2 * (at % from)],
                })
                .collect();
            // The same numbers by other sums.
            assert!(relative_error(&kept, same) < 1e-13, "{:e}", relative_error(&kept, same));
            let error = relative_error(rough, same);
            assert!(error > 1e-12 && error < 1e-2, "tolerance 1e-3: {error:e}");
            if axes == 2 {
                // Halfway along the first row inside, and in the middle of four.
                let at = |i: usize, j: usize| same[i * from + j];
                let between = 0.5 * (at(1, 3) + at(1, 4));
                assert!((fine[2 * to + 7] - between).abs() < 1e-14);
                let middle = 0.25 * (at(1, 3) + at(1, 4) + at(2, 3) + at(2, 4));
                assert!((fine[3 * to + 7] - middle).abs() < 1e-14);
            }
        }
    }
}
