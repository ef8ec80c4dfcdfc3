#![allow(clippy::print_stdout, missing_docs)]
use galerkin_data::pde::*;
use galerkin_data::random::*;
use galerkin_data::random_field::*;
use std::time::Instant;
fn main() {
    for tolerance in [1e-9, 1e-8, 1e-7] {
        println!("tol {tolerance:e}");
        for nu in [0.1 / std::f64::consts::TAU, 0.01, 1e-3] {
            for i in 0..if nu < 0.005 && tolerance < 1e-8 {
                0
            } else if nu < 0.005 {
                2
            } else {
                6
            } {
                let s =
                    periodic(&FieldLaw::BURGERS, &Stream { seed: 1, purpose: Purpose::Initial, index: i });
                let st = Instant::now();
                let r = burgers::solve_series(
                    &s,
                    nu,
                    1.0,
                    8192,
                    &burgers::Options { tolerance, ..Default::default() },
                );
                let el = st.elapsed().as_secs_f64();
                match r {
                    Ok(sol) => {
                        let ch = cole_hopf::solve(&s, nu, 1.0, 8192, 1e-6);
                        let e = ch.map(|c| {
                            let n: f64 = c.iter().map(|x| x * x).sum();
                            (c.iter().zip(&sol.u).map(|(a, b)| (a - b) * (a - b)).sum::<f64>() / n).sqrt()
                        });
                        println!(
                            "nu {nu:.4} {i}: {:.1} ms points {} steps {} err {:e} colehopf {:?}",
                            el * 1e3,
                            sol.points,
                            sol.steps,
                            sol.error,
                            e
                        );
                    }
                    Err(e) => println!("{e} {el}"),
                }
            }
        }
    }
    let st = Instant::now();
    let g = neumann(&FieldLaw::DARCY, &Stream { seed: 1, purpose: Purpose::Coefficient, index: 0 }, 421);
    println!("field {:.1} ms", st.elapsed().as_secs_f64() * 1e3);
    let a: Vec<f64> = g.iter().map(|&g| if g >= 0.0 { 12.0 } else { 3.0 }).collect();
    let st = Instant::now();
    let s = darcy::Solver::new(421).unwrap();
    println!("plan {:.1} ms", st.elapsed().as_secs_f64() * 1e3);
    for _ in 0..3 {
        let st = Instant::now();
        let r = s.solve(&a, &vec![1.0; a.len()], &Default::default()).unwrap();
        println!("darcy {:.1} ms it {} res {:e}", st.elapsed().as_secs_f64() * 1e3, r.iterations, r.residual);
    }
}
