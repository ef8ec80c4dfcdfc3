//! Every figure with made-up data, good and bad.

use galerkin_cli::figures::{
    Curve, Epoch, Field, FieldRow, LineRow, Lines, Picture, Point, Scene, check_name, convergence, fields,
    gallery, lines, reconstructions, resolutions,
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

fn all() -> Vec<(&'static str, Scene)> {
    vec![
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
            name.starts_with("fields") || name == "reconstructions" || name == "gallery",
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
fn a_name_says_the_format() {
    let folder = tempfile::tempdir().unwrap();
    let error = convergence_figure().save(&folder.path().join("c.pdf")).unwrap_err().to_string();
    assert!(error.contains("c.pdf") && error.contains(".png or .svg"), "{error}");
    assert!(check_name(std::path::Path::new("c")).is_err());
    let error = convergence_figure().save(&folder.path().join("no/folder/c.png")).unwrap_err().to_string();
    assert!(error.contains("no/folder/c.png"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
