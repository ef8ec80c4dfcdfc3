//! Every figure with made-up data, good and bad.

use galerkin_cli::figures::{
    Curve, Epoch, Field, FieldRow, LineRow, Lines, Panel, Picture, Place, Point, SampleRow, Scene,
    check_name, convergence, fields, gallery, lines, reconstructions, resolutions, samples,
};
use std::collections::HashSet;
use std::f32::consts::TAU;

fn grid(n: usize) -> Vec<f64> {
    (0..n).map(|j| j as f64 / n as f64).collect()
}

fn wave(n: usize, frequency: f32, height: f32) -> Vec<f32> {
    (0..n).map(|j| height * (TAU * frequency * j as f32 / n as f32).sin()).collect()
}

fn hill(n: usize, steep: f32) -> Vec<f32> {
    let at = |i: usize| i as f32 / (n - 1) as f32;
    let value = |i, j| 0.01 * ((steep * at(i)).sin() * at(j) * (1.0 - at(j)) + 0.2 * at(i));
    (0..n * n).map(|k| value(k / n, k % n)).collect()
}

fn checks(n: usize) -> Vec<f32> {
    (0..n * n).map(|k| if (k / n * 5 / n + k % n * 5 / n).is_multiple_of(2) { 12.0 } else { 3.0 }).collect()
}

fn line_figure(predicted: bool) -> Scene {
    let n = 2048;
    let (input, target) = (wave(n, 1.0, 0.8), wave(n, 2.0, 0.3));
    let prediction: Vec<f32> = target.iter().zip(wave(n, 7.0, 0.004)).map(|(u, e)| u + e).collect();
    let row = |k: usize| LineRow {
        title: format!("sample {k}, relative L² error 1.2×10⁻²"),
        input: &input,
        target: &target,
        prediction: predicted.then_some(&prediction[..]),
    };
    let (x, rows) = (grid(n), (0..3).map(row).collect());
    lines(&Lines {
        title: "Burgers, n = 2048",
        x_label: "x",
        y_label: "u",
        names: ["u(x, 0)", "u(x, 1)"],
        ends: [0.0, 1.0],
        x: &x,
        rows,
    })
}

fn field_figure(n: usize, predicted: bool) -> Scene {
    let (a, u) = (checks(n), hill(n, 3.0));
    let prediction: Vec<f32> = u.iter().zip(hill(n, 17.0)).map(|(u, e)| u + 0.01 * e).collect();
    let field = |values| Field { columns: n, values };
    let rows: Vec<_> = (0..2)
        .map(|k| FieldRow {
            title: format!("sample {k}"),
            input: field(&a),
            target: field(&u),
            prediction: predicted.then(|| field(&prediction)),
        })
        .collect();
    fields(&format!("Darcy, {n} × {n}"), ["coefficient a(x, y)", "solution u(x, y)"], &rows)
}

fn convergence_figure() -> Scene {
    let history: Vec<_> = (1..=100)
        .map(|k| {
            let training = 0.5 / f64::from(k) + 0.002;
            let validation = (k % 2 == 0).then_some(1.2 * training + 0.001);
            let learning_rate = 1e-3 * (1.0 - (f64::from(k) / 50.0 - 1.0).powi(2));
            Epoch { epoch: f64::from(k), training, validation, learning_rate }
        })
        .collect();
    convergence("Burgers, Galerkin transformer", "relative L² error", &history)
}

fn resolution_figure() -> Scene {
    let curve = |name: &str, level: f64| Curve {
        name: name.into(),
        points: [512.0, 1024.0, 2048.0, 4096.0, 8192.0]
            .map(|n: f64| {
                let error = level * (n / 512.0).powf(0.1);
                Point { resolution: n, error, band: Some([0.9 * error, 1.2 * error]) }
            })
            .to_vec(),
    };
    let curves = [curve("Galerkin", 1.1e-3), curve("Fourier", 1.6e-3), curve("FNO", 6e-3)];
    resolutions("Error against resolution", "points n", "relative L² error", &curves)
}

fn reconstruction_figure() -> Scene {
    let truth = checks(71);
    let blurred: Vec<Vec<f32>> = [0.0, 0.3, 0.6, 0.9]
        .iter()
        .map(|share| {
            truth
                .iter()
                .zip(hill(71, 5.0))
                .map(|(a, b)| (1.0 - share) * a + share * (7.5 + 300.0 * b))
                .collect()
        })
        .collect();
    let columns = ["truth", "noise 0", "noise 0.01", "noise 0.1"].map(String::from);
    let row = |k: usize| {
        (format!("sample {k}"), blurred.iter().map(|v| Field { columns: 71, values: v }).collect())
    };
    reconstructions("Reconstructed coefficient", &columns, &[row(0), row(1)])
}

fn gallery_figure() -> Scene {
    let (a, u) = (checks(43), hill(43, 9.0));
    let signed: Vec<f32> = u.iter().map(|v| v - 0.002).collect();
    let picture = |title: &str, values, signed| Picture {
        title: title.into(),
        field: Field { columns: 43, values },
        signed,
    };
    let upper = vec![picture("coefficient", &a, false), picture("first", &u, true)];
    let lower = vec![picture("left", &signed, true), picture("middle", &u, true), picture("right", &a, true)];
    gallery("Functions", &[("above".into(), upper), ("below".into(), lower)])
}

fn panels(names: &[&str], value: impl Fn(usize, usize) -> f32, points: usize) -> Vec<Panel> {
    let values = |k| (0..points).map(|i| value(k, i)).collect();
    names.iter().enumerate().map(|(k, name)| Panel { name: name.to_string(), values: values(k) }).collect()
}

/// The targets, a little off.
fn predicted(targets: &[Panel]) -> Vec<Panel> {
    let off = |(i, v): (usize, &f32)| v + 0.03 * (0.05 * i as f32).sin();
    let panel =
        |p: &Panel| Panel { name: p.name.clone(), values: p.values.iter().enumerate().map(off).collect() };
    targets.iter().map(panel).collect()
}

fn sample<'a>(
    k: usize,
    [input_place, target_place]: [Place<'a>; 2],
    inputs: Vec<Panel>,
    targets: Vec<Panel>,
) -> SampleRow<'a> {
    let predictions = Some(predicted(&targets));
    let title = format!("test sample {k}, error 1.25 %");
    SampleRow { title, input_place, inputs, target_place, targets, predictions }
}

/// A row for every index.
fn figure<'a>(title: &str, row: impl Fn(usize) -> SampleRow<'a>) -> Scene {
    samples(title, &[row(0), row(1)])
}

/// Many points in the plane that lie in no order, and the same in any space.
fn scattered(count: usize, dimension: usize) -> Vec<f32> {
    let steps = [0.754_877_7, 0.569_840_3, 0.381_966, 0.219_3];
    let step = |i: usize, k: usize| (i as f64 * steps[k % 4]).fract() as f32;
    (0..count).flat_map(|i| (0..dimension).map(move |k| (1.0 + k as f32) * step(i, k))).collect()
}

/// Triangles between two circles.
fn ring(around: usize, layers: usize) -> (Vec<f32>, Vec<u32>) {
    let point = |k: usize| {
        let (radius, angle) = (0.3 + 0.7 * (k / around) as f32 / layers as f32, TAU * (k % around) as f32);
        let angle = angle / around as f32;
        [1.6 * radius * angle.cos(), radius * angle.sin()]
    };
    let cell = |k: usize| {
        let next = k / around * around + (k + 1) % around;
        [k, next, next + around, k, next + around, k + around].map(|k| k as u32)
    };
    ((0..around * (layers + 1)).flat_map(point).collect(), (0..around * layers).flat_map(cell).collect())
}

/// Velocity and pressure on a line.
fn channels_on_a_line() -> Scene {
    let x = grid(300);
    let place = Place::Line { x: &x, ends: [0.0, 1.0], name: "x" };
    figure("Compressible flow, 300 points", |k| {
        let value = |c: usize, i: usize| (TAU * (1 + c + k) as f32 * i as f32 / 300.0).sin() * (1 + c) as f32;
        let names = ["density", "velocity", "pressure"];
        sample(k, [place; 2], panels(&names, value, 300), panels(&names, |c, i| 0.5 * value(c, i), 300))
    })
}

/// Seven channels on a rectangle of 4 × 1 give two.
fn channels_on_a_rectangle() -> Scene {
    let place = Place::Plane { points: [24, 96], lengths: [0.41, 1.64], names: ["y", "x"] };
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    figure("Channel, 24 × 96", |k| {
        let value =
            |c: usize, i: usize| (0.1 * (i % 96 + 10 * k) as f32).sin() * (0.1 * (c + i / 96) as f32).cos();
        let targets = panels(&["velocity", "pressure"], |c, i| 1e-3 * value(c + 1, i), 24 * 96);
        sample(k, [place; 2], panels(&names, value, 24 * 96), targets)
    })
}

/// A tall rectangle of one channel.
fn tall_rectangle() -> Scene {
    let place = Place::Plane { points: [80, 20], lengths: [9.0, 1.0], names: ["t", "x"] };
    figure("Advection, 80 × 20", |k| {
        let value = |_: usize, i: usize| (0.1 * (i / 20) as f32 + 0.3 * (i % 20 + k) as f32).sin();
        let (inputs, targets) = (panels(&["first"], value, 1600), panels(&["second"], value, 1600));
        sample(k, [place; 2], inputs, targets)
    })
}

fn slices() -> Scene {
    let place = Place::Volume { points: [16, 24, 48], lengths: [1.0, 1.5, 3.0], names: ["z", "y", "x"] };
    figure("Diffusion, 16 × 24 × 48", |k| {
        let value = |c: usize, i: usize| {
            let [z, y, x] = [i / 1152, i / 48 % 24, i % 48].map(|j| 0.2 * j as f32);
            (x + k as f32).sin() * (y + c as f32).cos() + 0.2 * z
        };
        let (inputs, targets) = (panels(&["source"], value, 18432), panels(&["u", "v"], value, 18432));
        sample(k, [place; 2], inputs, targets)
    })
}

fn points_figure(count: usize, dimension: usize) -> Scene {
    let coordinates = scattered(count, dimension);
    let place = Place::Points { coordinates: &coordinates, dimension, cells: &[], corners: 0 };
    figure(&format!("Scattered, {count} points"), |k| {
        let value = |c: usize, i: usize| {
            let p = &coordinates[i * dimension..][..dimension];
            (3.0 * p.iter().sum::<f32>() + (c + k) as f32).sin()
        };
        sample(k, [place; 2], panels(&["force"], value, count), panels(&["displacement"], value, count))
    })
}

/// A function of a line gives one on the cells of a ring.
fn line_to_cells() -> Scene {
    let (coordinates, cells) = ring(60, 8);
    let x = grid(100);
    let line = Place::Line { x: &x, ends: [0.0, 1.0], name: "s" };
    let plane = Place::Points { coordinates: &coordinates, dimension: 2, cells: &cells, corners: 3 };
    figure("Ring, 540 points", |k| {
        let input = panels(&["boundary value"], |_, i| (0.1 * (i + 20 * k) as f32).sin(), 100);
        let value = |c: usize, i: usize| (3.0 * coordinates[2 * i] + c as f32).sin() * coordinates[2 * i + 1];
        sample(k, [line, plane], input, panels(&["temperature", "flux"], value, 540))
    })
}

fn all() -> Vec<(&'static str, Scene)> {
    vec![
        ("samples-line", channels_on_a_line()),
        ("samples-image-wide", channels_on_a_rectangle()),
        ("samples-image-tall", tall_rectangle()),
        ("samples-image-volume", slices()),
        ("samples-points-1d", points_figure(90, 1)),
        ("samples-image-points-2d", points_figure(700, 2)),
        ("samples-image-points-thinned", points_figure(30_000, 2)),
        ("samples-image-points-3d", points_figure(1500, 3)),
        ("samples-image-cells", line_to_cells()),
        ("lines", line_figure(false)),
        ("lines-predicted", line_figure(true)),
        ("fields-coarse", field_figure(29, true)),
        ("fields-fine", field_figure(421, false)),
        ("convergence", convergence_figure()),
        ("resolutions", resolution_figure()),
        ("reconstructions", reconstruction_figure()),
        ("gallery", gallery_figure()),
    ]
}

/// Width, height and RGB bytes.
fn decoded(png: &[u8]) -> (u32, u32, Vec<u8>) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    (info.width, info.height, pixels)
}

/// Elements of a document of which every opening tag must be closed in order.
fn elements(svg: &str) -> Vec<&str> {
    let (mut open, mut seen) = (Vec::new(), Vec::new());
    for tag in svg.split('<').skip(1) {
        let (tag, text) = tag.split_once('>').expect("a closed tag");
        assert!(!text.replace("&lt;", "").replace("&gt;", "").replace("&amp;", "").contains('&'), "{text}");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        let name = tag.split_whitespace().next().unwrap();
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None => {
                seen.push(name);
                if !tag.ends_with('/') {
                    open.push(name);
                }
            }
        }
    }
    assert!(open.is_empty(), "{open:?}");
    seen
}

#[test]
fn every_figure_has_its_size_and_its_colours() {
    // GALERKIN_FIGURES=DIR keeps them, to look at.
    let keep = std::env::var_os("GALERKIN_FIGURES").map(std::path::PathBuf::from);
    for (name, scene) in all() {
        if let Some(folder) = &keep {
            scene.save(&folder.join(name).with_extension("png")).unwrap();
            scene.save(&folder.join(name).with_extension("svg")).unwrap();
        }
        let (width, height, pixels) = decoded(&scene.png());
        assert_eq!((width, height), (scene.width, scene.height), "{name}");
        let colours: HashSet<[u8; 3]> = pixels.as_chunks().0.iter().copied().collect();
        // A line drawing has its colours and their shades at edges; a picture many more.
        assert!(colours.len() > 100, "{name}: {}", colours.len());
        let white = pixels.as_chunks().0.iter().filter(|p| **p == [255; 3]).count();
        assert!(white > 0 && white < (width * height) as usize, "{name}");
    }
}

#[test]
fn the_same_numbers_give_the_same_bytes() {
    for ((name, one), (_, two)) in all().into_iter().zip(all()) {
        assert!(one.png() == two.png() && one.svg() == two.svg(), "{name}");
    }
}

#[test]
fn svg_is_well_formed_and_has_words_and_pictures() {
    for (name, scene) in all() {
        let svg = scene.svg();
        let seen = elements(&svg);
        assert!(seen.contains(&"text") && seen.contains(&"polyline"), "{name}");
        assert_eq!(
            seen.contains(&"image"),
            name.starts_with("fields")
                || name.starts_with("samples-image")
                || name == "reconstructions"
                || name == "gallery",
            "{name}"
        );
        assert!(svg.len() < 2_000_000, "{name}: {} bytes", svg.len());
    }
    let svg = line_figure(true).svg();
    for words in ["Burgers, n = 2048", "u(x, 0)", "u(x, 1)", "prediction − target", "sample 2", ">x<", ">u<"]
    {
        assert!(svg.contains(words), "{words}");
    }
    let svg = convergence_figure().svg();
    for words in ["epoch", "relative L² error", "learning rate", "validation", "10⁻²"] {
        assert!(svg.contains(words), "{words}");
    }
    let svg = resolution_figure().svg();
    for words in ["512", "8192", "points n", "Galerkin", "fill-opacity"] {
        assert!(svg.contains(words), "{words}");
    }
    let svg = gallery_figure().svg();
    for words in ["Functions", "above", "below", "coefficient", "first", "left", "middle", "right"] {
        assert!(svg.contains(&format!(">{words}<")), "{words}");
    }
}

#[test]
fn words_of_others_are_escaped() {
    let x = grid(2);
    let names = ["a < b", "\"&\""];
    let svg = lines(&Lines {
        title: "<script>\u{7}",
        x_label: "x",
        y_label: "u",
        names,
        ends: [0.0, 1.0],
        x: &x,
        rows: vec![],
    })
    .svg();
    elements(&svg);
    assert!(svg.contains("&lt;script&gt;") && svg.contains("a &lt; b") && !svg.contains('\u{7}'));
}

#[test]
fn bad_numbers_are_gaps_in_curves_and_grey_in_pictures() {
    let x = grid(8);
    let holed = [0.0, 1.0, f32::NAN, 1.0, f32::INFINITY, f32::NEG_INFINITY, 0.5, 0.0];
    let row = LineRow { title: String::new(), input: &holed, target: &holed, prediction: Some(&holed) };
    let figure = Lines {
        title: "",
        x_label: "x",
        y_label: "u",
        names: ["", ""],
        ends: [0.0, 1.0],
        x: &x,
        rows: vec![row],
    };
    let svg = lines(&figure).svg();
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");

    let field = Field { columns: 2, values: &[0.0, f32::NAN, 1.0, 0.5] };
    let (width, _, pixels) = decoded(
        &fields(
            "",
            ["", ""],
            &[FieldRow { title: String::new(), input: field, target: field, prediction: None }],
        )
        .png(),
    );
    // The second value of the first row is at the lower right of the first panel.
    let at = |x: usize, y: usize| &pixels[3 * (y * width as usize + x)..][..3];
    assert_eq!(at(92 + 180, 96 + 180), [176; 3]);
    assert_eq!(at(92 + 60, 96 + 60), [253, 231, 37]);
}

#[test]
fn empty_constant_and_ragged_data_have_a_figure() {
    let x = grid(4);
    for values in [&[][..], &[2.0; 4], &[f32::NAN; 4], &[f32::MAX, f32::MIN, 0.0, 1.0], &[1.0; 3], &[1.0; 9]]
    {
        let row = || LineRow { title: "s".into(), input: values, target: values, prediction: Some(values) };
        let figure = Lines {
            title: "t",
            x_label: "x",
            y_label: "u",
            names: ["a", "u"],
            ends: [0.0, 1.0],
            x: &x,
            rows: vec![row()],
        };
        let scenes = [lines(&figure)].into_iter().chain([0, 1, 2, 5].map(|columns| {
            let field = Field { columns, values };
            fields(
                "t",
                ["a", "u"],
                &[FieldRow { title: "s".into(), input: field, target: field, prediction: Some(field) }],
            )
        }));
        for scene in scenes {
            assert!(!scene.png().is_empty() && !scene.svg().contains("NaN"));
        }
    }
    let epoch = Epoch { epoch: 1.0, training: f64::NAN, validation: Some(0.0), learning_rate: f64::INFINITY };
    let point = Point { resolution: 0.0, error: -1.0, band: Some([f64::NAN, 1.0]) };
    let scenes = [
        convergence("", "", &[]),
        convergence("", "", &[epoch]),
        resolutions("", "", "", &[]),
        resolutions("", "", "", &[Curve { name: "c".into(), points: vec![point, point] }]),
        fields("", ["", ""], &[]),
        reconstructions("", &[], &[]),
        reconstructions("", &["truth".into()], &[("s".into(), vec![])]),
        gallery("", &[]),
        gallery("", &[("s".into(), vec![])]),
        lines(&Lines {
            title: "",
            x_label: "",
            y_label: "",
            names: ["", ""],
            ends: [0.0, 0.0],
            x: &[],
            rows: vec![],
        }),
    ];
    for scene in scenes {
        assert!(!scene.png().is_empty());
        elements(&scene.svg());
    }
}

#[test]
fn samples_of_one_channel_look_as_curves_and_pictures_do() {
    let one = |name: &str, values: &[f32]| vec![Panel { name: name.into(), values: values.to_vec() }];
    let x = grid(64);
    let (input, target, prediction) = (wave(64, 1.0, 1.0), wave(64, 2.0, 1.0), wave(64, 2.0, 0.9));
    for predicted in [false, true] {
        let place = Place::Line { x: &x, ends: [0.0, 2.0], name: "s" };
        let row = SampleRow {
            title: "sample".into(),
            input_place: place,
            inputs: one("a", &input),
            target_place: place,
            targets: one("u", &target),
            predictions: predicted.then(|| one("u", &prediction)),
        };
        let line = LineRow {
            title: "sample".into(),
            input: &input,
            target: &target,
            prediction: predicted.then_some(&prediction[..]),
        };
        let names = ["a", "u"];
        let expected = Lines {
            title: "t",
            x_label: "s",
            y_label: "u",
            names,
            ends: [0.0, 2.0],
            x: &x,
            rows: vec![line],
        };
        assert!(samples("t", std::slice::from_ref(&row)).svg() == lines(&expected).svg());

        let place = |points| Place::Plane { points, lengths: [1.0; 2], names: ["y", "x"] };
        let row = SampleRow { input_place: place([8, 8]), target_place: place([4, 16]), ..row };
        let field = FieldRow {
            title: "sample".into(),
            input: Field { columns: 8, values: &input },
            target: Field { columns: 16, values: &target },
            prediction: predicted.then_some(Field { columns: 16, values: &prediction }),
        };
        assert!(samples("t", &[row]).svg() == fields("t", names, &[field]).svg());
    }
    assert!(samples("t", &[]).svg().contains("no samples"));
}

#[test]
fn samples_say_what_is_not_drawn_and_what_is() {
    let svg = channels_on_a_rectangle().svg();
    for words in
        ["drawn: 4 of 7 input channels", ">a<", ">d<", ">velocity<", ">pressure<", "prediction − target"]
    {
        assert!(svg.contains(words), "{words}");
    }
    assert!(!svg.contains(">e<") && !svg.contains("target channels"));
    let svg = points_figure(30_000, 2).svg();
    assert!(svg.contains("2000 of 30000 points"));
    // Input, target, prediction and difference of two samples.
    assert_eq!(svg.matches("<circle").count(), 2 * 4 * 2000);
    let svg = points_figure(2000, 3).svg();
    assert!(!svg.contains("drawn:") && svg.matches("<circle").count() == 2 * 4 * 2000);
    // Curves and cells are never thinned.
    assert!(!line_to_cells().svg().contains("<circle"));
    let svg = points_figure(5000, 1).svg();
    assert!(svg.contains("2000 of 5000 points"));
    let svg = slices().svg();
    for words in ["source, middle of z", "u, middle of y", "v, middle of x"] {
        assert!(svg.contains(&format!(">{words}<")), "{words}");
    }
}

/// One sample of one channel without a name, the same in and out, without or with a prediction.
fn plain<'a>(place: Place<'a>, values: &[f32], prediction: Option<&[f32]>) -> SampleRow<'a> {
    let panel = |values: &[f32]| vec![Panel { name: String::new(), values: values.to_vec() }];
    SampleRow {
        title: String::new(),
        input_place: place,
        inputs: panel(values),
        target_place: place,
        targets: panel(values),
        predictions: prediction.map(panel),
    }
}

#[test]
fn rectangles_keep_their_shape_within_four_to_one() {
    for (lengths, ratio) in [
        ([1.0, 2.0], 2.0),
        ([3.0, 1.0], 1.0 / 3.0),
        ([1.0, 100.0], 4.0),
        ([1e9, 1e-9], 0.25),
        ([2.0, 2.0], 1.0),
        ([f64::NAN, f64::NAN], 1.0),
    ] {
        let place = Place::Plane { points: [2, 2], lengths, names: ["y", "x"] };
        let svg = samples("", &[plain(place, &[0.0, 1.0, 2.0, 3.0], None)]).svg();
        let image = svg.split("<image").nth(1).unwrap();
        let number = |name: &str| -> f64 {
            image.split(&format!(" {name}=\"")).nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
        };
        let drawn = number("width") / number("height");
        assert!((drawn / ratio - 1.0).abs() < 0.02, "{lengths:?}: {drawn}");
    }
}

/// How many pixels have a colour.
fn count(scene: &Scene, colour: [u8; 3]) -> usize {
    decoded(&scene.png()).2.as_chunks().0.iter().filter(|pixel| **pixel == colour).count()
}

const HIGHEST: [u8; 3] = [253, 231, 37];
const MIDDLE: [u8; 3] = [33, 144, 140];

#[test]
fn a_prediction_has_the_colours_of_its_target() {
    let place = Place::Plane { points: [2, 2], lengths: [2.0; 2], names: ["y", "x"] };
    let row = plain(place, &[0.0, 1.0, 0.0, 1.0], Some(&[0.0, 2.0, 0.0, 2.0]));
    let scene = samples("", &[row]);
    let half = 230 * 115;
    // Half of the input and of the prediction; half of the target.
    for (colour, area) in [(HIGHEST, 2 * half), (MIDDLE, half)] {
        let counted = count(&scene, colour);
        assert!(counted.abs_diff(area) < area / 20, "{counted} of {area}");
    }
}

#[test]
fn slices_are_in_the_middle() {
    let place = Place::Volume { points: [3, 4, 5], lengths: [1.0; 3], names: ["z", "y", "x"] };
    let values: Vec<f32> = (0..60).map(|k| if k / 20 == 1 { 5.0 } else { 0.0 }).collect();
    // All of the first slice and a third of the two others, of the input and of the target.
    let (area, counted) =
        (2 * (180 * 180 + 2 * 60 * 180), count(&samples("", &[plain(place, &values, None)]), HIGHEST));
    assert!(counted.abs_diff(area) < area / 20, "{counted} of {area}");
}

#[test]
fn cells_are_filled_and_grey_without_a_number() {
    let square = [0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0];
    let place = |cells, corners| Place::Points { coordinates: &square, dimension: 2, cells, corners };
    // The lower right triangle has numbers, of which the upper left one lacks one.
    let values = [7.0, 7.0, 7.0, f32::NAN];
    let halves = 2 * 230 * 115;
    let near = |counted: usize, area: usize| counted.abs_diff(area) < area / 20;
    for (cells, corners, number, missing) in [
        (&[0, 1, 2, 0, 2, 3][..], 3, halves, halves),
        (&[0, 1, 2, 3], 4, halves, halves),
        (&[0, 1, 2, 9, 0, 1], 3, halves, 0),
    ] {
        let scene = samples("", &[plain(place(cells, corners), &values, None)]);
        assert!(near(count(&scene, MIDDLE), number), "{cells:?}");
        let grey = count(&scene, [176; 3]);
        assert!(if missing == 0 { grey < 100 } else { near(grey, missing) }, "{cells:?}: {grey}");
    }
}

#[test]
fn any_place_has_a_figure_of_any_values() {
    let x = grid(4);
    let coordinates =
        [0.0, 1.0, f32::NAN, 2.0, f32::INFINITY, 0.5, 0.25, 0.75, -1.0, 3.0, f32::MAX, f32::MIN];
    let points =
        |dimension, cells, corners| Place::Points { coordinates: &coordinates, dimension, cells, corners };
    let nowhere = |dimension| Place::Points { coordinates: &[], dimension, cells: &[], corners: 3 };
    let plane = |points, lengths| Place::Plane { points, lengths, names: ["y", "x"] };
    let volume = |points, lengths| Place::Volume { points, lengths, names: ["z", "y", "x"] };
    let mut places = vec![
        Place::Line { x: &x, ends: [0.0, 1.0], name: "x" },
        Place::Line { x: &[], ends: [f64::NAN, 1.0], name: "" },
        plane([2, 2], [1.0, 3.0]),
        plane([0, 0], [0.0, 1.0]),
        plane([5, 3], [-1.0, f64::INFINITY]),
        volume([1, 2, 2], [1.0; 3]),
        volume([0, 0, 0], [0.0; 3]),
        volume([3, 3, 3], [1e-30, 1.0, 1e30]),
        points(2, &[0, 1, 2, 3, 4, 5, 9, 9, 9, 0], 3),
        points(2, &[0, 1], 2),
        points(3, &[0, 1, 2], 3),
    ];
    places.extend([0, 1, 2, 3, 4, 5].map(|dimension| points(dimension, &[], 0)));
    places.extend([0, 1, 2, 3, 4, 5].map(nowhere));
    let panels = |values: &[f32], count| vec![Panel { name: "<u>".into(), values: values.to_vec() }; count];
    for (k, input_place) in places.iter().enumerate() {
        let target_place = places[(k * 7 + 3) % places.len()];
        for values in
            [&[][..], &[2.0; 4], &[f32::NAN; 4], &[f32::MAX, f32::MIN, 0.0, f32::INFINITY, 1.0, 2.0]]
        {
            for counts in [[0, 0, 0], [1, 1, 1], [2, 1, 3], [6, 5, 5]] {
                let [inputs, targets, found] = counts.map(|count| panels(values, count));
                let row = |input_place, predictions| SampleRow {
                    title: "s".into(),
                    input_place,
                    inputs: inputs.clone(),
                    target_place,
                    targets: targets.clone(),
                    predictions,
                };
                // Samples of one figure may lie on different domains.
                let scene = samples("t", &[row(*input_place, Some(found)), row(target_place, None)]);
                let svg = scene.svg();
                elements(&svg);
                assert!(
                    !svg.contains("NaN") && !svg.contains("inf"),
                    "{input_place:?} {values:?} {counts:?}"
                );
                if counts == [1, 1, 1] {
                    assert!(!scene.png().is_empty());
                }
            }
        }
    }
}

#[test]
fn a_name_says_the_format() {
    let folder = tempfile::tempdir().unwrap();
    let error = convergence_figure().save(&folder.path().join("c.pdf")).unwrap_err().to_string();
    assert!(error.contains("c.pdf") && error.contains(".png or .svg"), "{error}");
    assert!(check_name(std::path::Path::new("c")).is_err());
    let error = convergence_figure().save(&folder.path().join("no/folder/c.png")).unwrap_err().to_string();
    assert!(error.contains("no/folder/c.png"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
