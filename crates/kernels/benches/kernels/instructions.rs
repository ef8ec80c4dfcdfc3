//! Instructions of one call of each kernel, counted by callgrind: a number that does not depend on the weather.
//!
//! Valgrind offers AVX2 and no AVX-512, so the counts are of the AVX2 paths, on one thread.

use std::collections::BTreeMap;
use std::process::Command;

use galerkin_kernels::activation::Activation;
use galerkin_kernels::adam::{Adam, Slot, Step};
use galerkin_kernels::attention::Kind;
use galerkin_kernels::conv3x3::{self, Conv3x3};
use galerkin_kernels::dropout::{Dropout, Key, Site};
use galerkin_kernels::par;
use galerkin_kernels::resize::Resize;
use galerkin_kernels::spectral::{Grads, Params, SpectralConv1d, SpectralConv2d};

use crate::encoder::{Bench, layer};
use crate::timing::values;

type Kernel = fn() -> Box<dyn FnMut()>;

/// The word with which this program is called for a process that is counted.
pub const COUNTED: &str = "counted";
/// Counts of the last time somebody recorded them.
const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/kernels/instructions.csv");

const KERNELS: [(&str, Kernel); 14] = [
    ("encoder-galerkin-forward", || forward(Kind::Galerkin)),
    ("encoder-galerkin-backward", || backward(Kind::Galerkin)),
    ("encoder-fourier-forward", || forward(Kind::Fourier)),
    ("encoder-fourier-backward", || backward(Kind::Fourier)),
    ("encoder-linear-forward", || forward(Kind::Linear)),
    ("encoder-linear-backward", || backward(Kind::Linear)),
    ("encoder-softmax-forward", || forward(Kind::Softmax)),
    ("encoder-softmax-backward", || backward(Kind::Softmax)),
    ("spectral-1d-both", spectral_1d),
    ("spectral-2d-both", spectral_2d),
    ("conv3x3-both", conv),
    ("resize-both", resize),
    ("adam", adam),
    ("dropout", dropout),
];

/// Prints the counts beside the recorded ones; with GALERKIN_RECORD=1 they become these.
pub fn run() {
    let text = std::fs::read_to_string(RECORDED).unwrap_or_default();
    let recorded: BTreeMap<&str, u64> = text
        .lines()
        .filter_map(|line| line.split_once(','))
        .filter_map(|(name, count)| Some((name, count.parse().ok()?)))
        .collect();
    let mut csv = String::from("kernel,instructions\n");
    println!("| kernel | instructions | recorded | change |\n| --- | --- | --- | --- |");
    for (name, _) in KERNELS {
        let count = executed(name);
        let (before, change) = match recorded.get(name) {
            Some(&before) => {
                (before.to_string(), format!("{:+.2} %", 100.0 * (count as f64 / before as f64 - 1.0)))
            }
            None => ("-".into(), "-".into()),
        };
        println!("| {name} | {count} | {before} | {change} |");
        csv.push_str(&format!("{name},{count}\n"));
    }
    if std::env::var_os("GALERKIN_RECORD").is_some() {
        std::fs::write(RECORDED, csv).expect(RECORDED);
    }
}

/// The process that is counted. A first call has what is done once; and outside the pool a thread would wait for it, for as many
/// instructions as that happens to take.
pub fn counted(name: &str) {
    let (_, kernel) = KERNELS.iter().find(|(own, _)| *own == name).expect("a kernel of this name");
    par::on_pool(|| {
        let mut call = kernel();
        call();
        galerkin_counted_call(&mut *call);
    });
}

/// Callgrind counts while it is in here, and knows it by its name.
#[inline(never)]
fn galerkin_counted_call(call: &mut dyn FnMut()) {
    call();
}

/// Instructions of one call.
fn executed(name: &str) -> u64 {
    let program = std::env::current_exe().expect("the path of this program");
    let output = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
            "--toggle-collect=*galerkin_counted_call*",
        ])
        .arg(program)
        .args([COUNTED, name])
        .env("RAYON_NUM_THREADS", "1")
        .output()
        .expect("valgrind, which most systems have as a package");
    let said = String::from_utf8_lossy(&output.stderr);
    let count = said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    count
        .filter(|count| *count > 0)
        .unwrap_or_else(|| panic!("{name}: expected a line with a count, found {said}"))
}

fn forward(kind: Kind) -> Box<dyn FnMut()> {
    let mut bench = Bench::new(layer(kind, 1, 512));
    Box::new(move || bench.forward())
}

/// The forward pass comes before, once.
fn backward(kind: Kind) -> Box<dyn FnMut()> {
    let mut bench = Bench::new(layer(kind, 1, 512));
    bench.forward();
    Box::new(move || bench.backward())
}

fn spectral_1d() -> Box<dyn FnMut()> {
    let conv = SpectralConv1d {
        batch: 1,
        n: 512,
        inputs: 96,
        outputs: 48,
        modes: 16,
        pointwise: true,
        activation: Activation::Silu,
        dropout: 0.0,
        key: Key::default(),
    };
    let (plan, mut memory) = (conv.plan(), Spectral::new(conv.n, 96, 48, 16));
    let (mut saved, mut workspace) = (vec![0.0; conv.saved_len()], vec![0.0; conv.workspace_len(1)]);
    Box::new(move || {
        let Spectral { params: [weights, w, b], grads: [dweights, dw, db], x, y, dy, dx } = &mut memory;
        let params = Params { weights, w, b };
        conv.forward(&plan, &params, x, y, &mut saved, &mut workspace);
        let grads = Grads { weights: dweights, w: dw, b: db };
        conv.backward(&plan, &params, x, &saved, dy, dx, grads, &mut workspace);
    })
}

fn spectral_2d() -> Box<dyn FnMut()> {
    let conv = SpectralConv2d {
        batch: 1,
        n1: 29,
        n2: 29,
        inputs: 32,
        outputs: 32,
        modes: 12,
        pointwise: true,
        activation: Activation::Silu,
        dropout: 0.0,
        key: Key::default(),
    };
    let (plan, mut memory) = (conv.plan(), Spectral::new(29 * 29, 32, 32, 2 * 12 * 12));
    let (mut saved, mut workspace) = (vec![0.0; conv.saved_len()], vec![0.0; conv.workspace_len(1)]);
    Box::new(move || {
        let Spectral { params: [weights, w, b], grads: [dweights, dw, db], x, y, dy, dx } = &mut memory;
        let params = Params { weights, w, b };
        conv.forward(&plan, &params, x, y, &mut saved, &mut workspace);
        let grads = Grads { weights: dweights, w: dw, b: db };
        conv.backward(&plan, &params, x, &saved, dy, dx, grads, &mut workspace);
    })
}

/// What a spectral convolution reads and writes; parameters are spectral weights, W and b.
struct Spectral {
    params: [Vec<f32>; 3],
    grads: [Vec<f32>; 3],
    x: Vec<f32>,
    y: Vec<f32>,
    dy: Vec<f32>,
    dx: Vec<f32>,
}

impl Spectral {
    fn new(points: usize, inputs: usize, outputs: usize, modes: usize) -> Self {
        let params = [2 * modes * inputs * outputs, inputs * outputs, outputs].map(values);
        let grads = params.clone();
        let (x, y) = (values(points * inputs), values(points * outputs));
        Self { params, grads, dx: x.clone(), dy: y.clone(), x, y }
    }
}

fn conv() -> Box<dyn FnMut()> {
    let shape = Conv3x3 {
        batch: 1,
        n1: 29,
        n2: 29,
        inputs: 128,
        outputs: 42,
        bias: false,
        dropout: None,
        activation: Activation::Silu,
        keep: false,
    };
    let (x, w, dy) = (values(shape.x_len()), values(shape.lengths().w), values(shape.y_len()));
    let (mut y, mut dx, mut dw) = (dy.clone(), x.clone(), w.clone());
    let mut workspace = vec![0.0; shape.workspace_len(par::threads())];
    Box::new(move || {
        let params = conv3x3::Params { w: &w, b: &[] };
        shape.forward(&x, params, &mut y, &mut [], &mut workspace);
        let grads = conv3x3::Grads { w: &mut dw, b: &mut [] };
        shape.backward(&x, params, &[], &dy, Some(&mut dx[..]), grads, &mut workspace);
    })
}

fn resize() -> Box<dyn FnMut()> {
    let plan = Resize::new([43, 43], [29, 29], 128, Activation::Silu);
    let (x, dy) = (values(plan.x_len(1)), values(plan.y_len(1)));
    let (mut y, mut dx) = (dy.clone(), x.clone());
    let mut workspace = vec![0.0; plan.workspace_len(1, par::threads())];
    Box::new(move || {
        plan.forward(1, &x, &mut y, &mut workspace);
        plan.backward(1, &x, &dy, &mut dx, &mut workspace);
    })
}

/// A hundred thousand parameters in one slot.
fn adam() -> Box<dyn FnMut()> {
    let mut slot = [(); 4].map(|()| values(100_000));
    slot[3].iter_mut().for_each(|v| *v = v.abs());
    let adam = Adam { beta2: 0.999, eps: 1e-8, weight_decay: 0.0, max_norm: 0.99 };
    let mut t = 0;
    Box::new(move || {
        t += 1;
        let [param, grad, m, v] = &mut slot;
        adam.step(Step { lr: 1e-3, beta1: 0.9, t }, &mut [Slot { param, grad, m, v }]);
    })
}

/// Masks of a hundred thousand values.
fn dropout() -> Box<dyn FnMut()> {
    let dropout = Dropout { rate: 0.05, key: Key::default(), site: Site::Outside };
    let mut values = values(100_000);
    Box::new(move || dropout.apply(0, &mut values))
}
