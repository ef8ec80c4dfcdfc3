//! The paper's theorems on small matrices and on the layers of a model; at full size with
//! `cargo test -p galerkin-paper --release --test theory -- --ignored --nocapture`.

use burn::tensor::{Device, Tensor, TensorData};
use galerkin::config::RunConfig;
use galerkin::networks::NetworkConfig;
use galerkin::presets;
use galerkin_paper::theory::cea::{LayerCheck, check_case, check_layer};
use galerkin_paper::theory::projection::{self, CASES, Case, LatentSource, ProjectionCheck};
use galerkin_paper::theory::stability::{self, GridBounds, SmoothFunctions};

#[test]
fn attention_with_updated_matrices_is_the_projection() {
    for case in CASES.into_iter().filter(|case| case.n < 1000) {
        assert_projects(&projection::check(case).unwrap());
    }
}

/// M has the square of V's condition, and (B M⁻¹ Bᵀ)⁻¹ is no better: both ways to the projection lose as many digits.
fn assert_projects(check: &ProjectionCheck) {
    let rounding = 10.0 * f64::EPSILON * check.condition * check.condition;
    assert!(rounding < 1e-10, "{check:?}");
    for found in [check.update, check.min_max, check.basis_update] {
        assert!(found < rounding, "{found} above {rounding}: {check:?}");
    }
    // As printed, Theorem 4.4 lacks a factor 1/n, and with it, it still has V where K belongs.
    assert!(check.basis_update_printed > 1.0 && check.basis_update_scaled > 0.1, "{check:?}");
}

/// 64 points resolve the 20 frequencies of the fields, but not those that layer norm and softmax add: the bounds are off by 5·10⁻³ there, by
/// 10⁻¹¹ on 256 points.
#[test]
fn the_lower_bound_does_not_depend_on_the_number_of_points() {
    let found = stability::measure(&SmoothFunctions::default(), &[64, 256, 1024]).unwrap();
    let [coarse, middle, fine] = &found.grids[..] else { panic!("{found:?}") };
    let near =
        |a: f64, b: f64, tolerance: f64| assert!((a / b - 1.0).abs() < tolerance, "{a} and {b}: {found:?}");
    let bounds: [fn(&GridBounds) -> f64; 5] = [
        |grid| grid.layer_norm.c,
        |grid| grid.layer_norm.best,
        |grid| grid.softmax.c,
        |grid| grid.softmax.best,
        |grid| grid.softmax_by_norm_before * grid.n as f64,
    ];
    for of in bounds {
        near(of(coarse), of(fine), 0.01);
        near(of(middle), of(fine), 1e-10);
    }
    for grid in &found.grids {
        for bound in [grid.layer_norm, grid.softmax] {
            assert!(0.0 < bound.c && bound.c < bound.best && bound.best <= 1.0, "{bound:?}");
        }
    }
    let slopes = &found.slopes;
    assert!(slopes.layer_norm.abs() < 0.01 && slopes.softmax.abs() < 0.01, "{slopes:?}");
    assert!((slopes.softmax_by_norm_before + 1.0).abs() < 0.01, "{slopes:?}");
}

#[test]
fn ceas_inequality_holds_for_random_matrices() {
    for case in CASES.into_iter().filter(|case| case.n < 1000) {
        let found = check_case(case, 300).unwrap();
        found.verify().unwrap_or_else(|error| panic!("{error}: {found:?}"));
        assert_eq!([found.cea.values, found.cea.keys], [case.r, case.d]);
        match case.latents {
            // All values are keys: the projection is orthogonal, and nothing is lost.
            LatentSource::Shared => {
                assert!((found.cea.c - 1.0).abs() < 1e-12 && found.cea.worst_ratio < 1.0 + 1e-6, "{found:?}");
            }
            LatentSource::Separate => assert!(found.cea.c < 0.5 && found.cea.worst_ratio > 1.01, "{found:?}"),
        }
    }
    let case = Case { n: 64, d: 4, r: 2, latents: LatentSource::Separate, seed: 1 };
    assert_eq!(check_case(case, 65).unwrap(), check_case(case, 65).unwrap());
    assert_ne!(check_case(case, 65).unwrap(), check_case(Case { seed: 2, ..case }, 65).unwrap());
}

/// The layers of untrained models, in 1D and in 2D with several heads.
#[test]
fn ceas_inequality_holds_in_the_layers_of_a_model() {
    let device = Device::flex();
    let settings = [("network.encoder.layers", "2"), ("network.encoder.heads", "2")];
    let line = with(presets::get("burgers").unwrap(), &settings);
    let wave = |i: i64| ((7 * i % 64) as f32 * 0.1).sin();
    let values: Vec<f32> = (0..2 * 64).map(wave).collect();
    let input = Tensor::from_data(TensorData::new(values, [2, 64, 1]), &device);
    // A first layer is linear: u and 1 span y, Q adds the coordinate; layer norm of y is another function of u.
    let dimensions = layers_hold(&line, &input, &[64], 49);
    assert!(dimensions.iter().take(4).all(|found| *found == 3), "{dimensions:?}");

    let settings =
        [("network.encoder.layers", "2"), ("network.lift.fine", "29"), ("network.lift.coarse", "15")];
    let square = with(presets::get("darcy").unwrap(), &settings);
    let values: Vec<f32> = (0..29 * 29).map(wave).collect();
    let input = Tensor::from_data(TensorData::new(values, [1, 29 * 29, 1]), &device);
    let dimensions = layers_hold(&square, &input, &[29, 29], 34);
    assert!(dimensions.iter().all(|found| *found > 3), "{dimensions:?}");
}

/// The network of a run with other settings.
fn with(config: RunConfig, settings: &[(&str, &str)]) -> NetworkConfig {
    let settings: Vec<_> = settings.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    config.with(&settings).unwrap().network
}

/// Checks all heads of both layers, `wide` columns each, for all samples; gives back the dimensions of their values.
fn layers_hold(config: &NetworkConfig, input: &Tensor<3>, grid: &[usize], wide: usize) -> Vec<usize> {
    let network = config.init(5, &Device::flex()).unwrap();
    let mut dimensions = Vec::new();
    for layer in 0..2 {
        let projections = network.projections(input.clone(), grid, layer).unwrap();
        let [_, k, v] = projections.clone();
        let [batch, heads, n, found] = k.dims();
        assert_eq!(found, wide);
        // They are what attention is made of.
        let weights = values(network.attention_weights(input.clone(), grid, layer).unwrap());
        let product = values(k.transpose().matmul(v) / n as f32);
        let largest = weights.iter().fold(0.0f32, |most, w| most.max(w.abs()));
        for (found, expected) in product.iter().zip(&weights) {
            // The kernel's order of sums is another: a sum of n terms, each rounded.
            assert!((found - expected).abs() < 1e-5 * largest, "{found} is not {expected}");
        }
        let [q, k, v] = projections.map(values);
        for head in (0..batch * heads).map(|i| i * n * wide..(i + 1) * n * wide) {
            let found = check_layer(&q[head.clone()], &k[head.clone()], &v[head], n, wide, 60, 1).unwrap();
            found.verify().unwrap_or_else(|error| panic!("layer {layer}: {error}: {found:?}"));
            dimensions.push(found.cea.values);
        }
        assert!(network.projections(input.clone(), grid, 2).is_err());
    }
    dimensions
}

fn values(tensor: Tensor<4>) -> Vec<f32> {
    tensor.into_data().try_into_vec().unwrap()
}

/// All cases, 64 to 65,536 points, thousands of functions: 20 seconds.
#[test]
#[ignore = "takes 20 seconds"]
#[expect(clippy::print_stdout, reason = "the numbers are what the run is for")]
fn at_full_size() {
    for case in CASES {
        let check = projection::check(case).unwrap();
        println!("{check:?}");
        assert_projects(&check);
    }
    let points: Vec<usize> = (6..=16).map(|power| 1 << power).collect();
    for functions in
        [SmoothFunctions::default(), SmoothFunctions { r: 8, seed: 2, ..SmoothFunctions::default() }]
    {
        let found = stability::measure(&functions, &points).unwrap();
        println!("{functions:?}");
        for grid in &found.grids {
            println!("{grid:?}");
        }
        println!("{:?}", found.slopes);
    }
    for case in CASES {
        let found: LayerCheck = check_case(case, 4000).unwrap();
        println!("{found:?}");
        found.verify().unwrap();
    }
}
