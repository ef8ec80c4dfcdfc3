//! The galerkin encoder layer as separate whole-tensor steps on the same `gemm`, the way a framework runs it: every step reads and writes
//! tensors of all points, everything is kept for the backward pass, nothing folds. Both threads share each step.

use galerkin_kernels::gemm::{Into, View, ViewMut, gemm};
use galerkin_kernels::norm::LayerNorm;
use galerkin_kernels::par;

use crate::timing::values;

const B: usize = 8;
const D: usize = 96;
/// One coordinate in front.
const W: usize = D + 1;
const F: usize = 2 * D;

pub struct Unfused {
    n: usize,
    t: Vec<(&'static str, Vec<f32>)>,
    workspace: Vec<f32>,
}

impl Unfused {
    pub fn new(n: usize) -> Self {
        let m = B * n;
        let points = [
            ("x", D),
            ("q", D),
            ("k", D),
            ("v", D),
            ("kn", D),
            ("vn", D),
            ("qc", W),
            ("kc", W),
            ("vc", W),
            ("o", W),
            ("a", D),
            ("x1", D),
            ("z", F),
            ("h", F),
            ("f", D),
            ("y", D),
            ("dy", D),
            ("dh", F),
            ("dz", F),
            ("dx1", D),
            ("do", W),
            ("dqc", W),
            ("dkc", W),
            ("dvc", W),
            ("dq", D),
            ("dkn", D),
            ("dvn", D),
            ("dk", D),
            ("dv", D),
            ("dx", D),
            ("pos", 1),
        ];
        let parameters = [
            ("wq", D * D),
            ("wk", D * D),
            ("wv", D * D),
            ("wo", W * D),
            ("w1", D * F),
            ("w2", F * D),
            ("b", F),
            ("gamma", D),
            ("beta", D),
            ("att", B * W * W),
            ("datt", B * W * W),
            ("gq", D * D),
            ("gk", D * D),
            ("gv", D * D),
            ("go", W * D),
            ("g1", D * F),
            ("g2", F * D),
            ("gb", F),
            ("gg", D),
            ("gbeta", D),
        ];
        let mut t: Vec<_> = points.iter().map(|(name, width)| (*name, values(m * width))).collect();
        t.extend(parameters.iter().map(|(name, len)| (*name, values(*len))));
        let norm = LayerNorm { rows: m, width: D, eps: 1e-5 };
        let workspace = vec![0.0; norm.workspace_len(par::threads()).max(par::threads() * F * D)];
        Self { n, t, workspace }
    }

    fn take(&mut self, name: &str) -> Vec<f32> {
        let slot = self.t.iter_mut().find(|(n, _)| *n == name).expect("a known tensor");
        std::mem::take(&mut slot.1)
    }

    fn put(&mut self, name: &str, data: Vec<f32>) {
        self.t.iter_mut().find(|(n, _)| *n == name).expect("a known tensor").1 = data;
    }

    fn get(&self, name: &str) -> &[f32] {
        &self.t.iter().find(|(n, _)| *n == name).expect("a known tensor").1
    }

    /// `out = a w (+ bias)`, or `out += a wᵀ` and the like; (rows, k) times a (k, cols) view.
    fn product(
        &mut self,
        out: &str,
        into: Into,
        a: &str,
        w: &str,
        [k, cols]: [usize; 2],
        transposed: bool,
        bias: bool,
    ) {
        let (m, mut c) = (B * self.n, self.take(out));
        let (a, w, b) = (self.get(a), self.get(w), self.get("b"));
        let threads = par::threads();
        let cut = |i: usize| m * i / threads;
        par::for_each(threads, par::pieces(&mut c, |i| cut(i) * cols), &mut [], 0, &|i, c, _| {
            let rows = cut(i + 1) - cut(i);
            let w = if transposed { View::new(w, cols, k).t() } else { View::new(w, k, cols) };
            gemm(into, 1.0, View::new(&a[cut(i) * k..], rows, k), w, ViewMut::new(c, rows, cols));
            if bias {
                c.chunks_exact_mut(cols).for_each(|row| row.iter_mut().zip(b).for_each(|(c, b)| *c += b));
            }
        });
        self.put(out, c);
    }

    /// Per sample `out = alpha aᵀ b`, both `W` wide.
    fn per_sample(&mut self, out: &str, a: &str, b: &str) {
        let (n, mut c) = (self.n, self.take(out));
        let (a, b) = (self.get(a), self.get(b));
        par::for_each(B, par::equal(&mut c, W * W), &mut [], 0, &|s, c, _| {
            let [a, b] = [a, b].map(|t| View::new(&t[s * n * W..], n, W));
            gemm(Into::Set, 1.0 / n as f32, a.t(), b, ViewMut::new(c, W, W));
        });
        self.put(out, c);
    }

    /// Per sample `out = a m` or `a mᵀ`, all `W` wide.
    fn apply(&mut self, out: &str, a: &str, m: &str, transposed: bool) {
        let (n, mut c) = (self.n, self.take(out));
        let (a, m) = (self.get(a), self.get(m));
        par::for_each(B, par::equal(&mut c, n * W), &mut [], 0, &|s, c, _| {
            let m = View::new(&m[s * W * W..], W, W);
            let m = if transposed { m.t() } else { m };
            gemm(Into::Set, 1.0, View::new(&a[s * n * W..], n, W), m, ViewMut::new(c, n, W));
        });
        self.put(out, c);
    }

    /// `out = aᵀ b` over all points, and the column sums of b.
    fn weight_gradient(&mut self, out: &str, a: &str, b: &str, [ca, cb]: [usize; 2]) {
        let (m, mut c, mut gb, mut partial) =
            (B * self.n, self.take(out), self.take("gb"), std::mem::take(&mut self.workspace));
        let (a, b) = (self.get(a), self.get(b));
        let threads = par::threads();
        par::for_each(
            threads,
            par::equal(&mut partial[..threads * ca * cb], ca * cb),
            &mut [],
            0,
            &|i, c, _| {
                let (start, end) = (m * i / threads, m * (i + 1) / threads);
                let a = View::new(&a[start * ca..], end - start, ca);
                gemm(
                    Into::Set,
                    1.0,
                    a.t(),
                    View::new(&b[start * cb..], end - start, cb),
                    ViewMut::new(c, ca, cb),
                );
            },
        );
        par::sum_lanes(&partial[..threads * ca * cb], threads, 0, &mut c);
        gb[..cb].fill(0.0);
        b.chunks_exact(cb).for_each(|row| gb.iter_mut().zip(row).for_each(|(g, v)| *g += v));
        self.put(out, c);
        self.put("gb", gb);
        self.workspace = partial;
    }

    /// `out_i = f(a_i, b_i)` over whole tensors.
    fn map(&mut self, out: &str, a: &str, b: &str, f: impl Fn(f32, f32) -> f32 + Sync) {
        let mut c = self.take(out);
        let (a, b, len, threads) = (self.get(a), self.get(b), c.len(), par::threads());
        let cut = |i: usize| len * i / threads;
        par::for_each(threads, par::pieces(&mut c, cut), &mut [], 0, &|i, c, _| {
            let (a, b) = (&a[cut(i)..cut(i + 1)], &b[cut(i)..cut(i + 1)]);
            c.iter_mut().zip(a).zip(b).for_each(|((c, a), b)| *c = f(*a, *b));
        });
        self.put(out, c);
    }

    /// Coordinates in front of features, or taken off again.
    fn join(&mut self, out: &str, features: &str) {
        let mut c = self.take(out);
        let (u, pos) = (self.get(features), self.get("pos"));
        par::for_each(B * self.n, par::equal(&mut c, W), &mut [], 0, &|r, c, _| {
            c[0] = pos[r];
            c[1..].copy_from_slice(&u[r * D..][..D]);
        });
        self.put(out, c);
    }

    fn split(&mut self, out: &str, joined: &str) {
        let mut c = self.take(out);
        let u = self.get(joined);
        par::for_each(B * self.n, par::equal(&mut c, D), &mut [], 0, &|r, c, _| {
            c.copy_from_slice(&u[r * W + 1..][..D]);
        });
        self.put(out, c);
    }

    fn norm(&mut self, out: &str, x: &str) {
        let mut c = self.take(out);
        let norm = LayerNorm { rows: B * self.n, width: D, eps: 1e-5 };
        norm.forward(self.get("gamma"), self.get("beta"), self.get(x), &mut c);
        self.put(out, c);
    }

    fn norm_backward(&mut self, out: &str, x: &str, dy: &str) {
        let (mut c, mut gg, mut gbeta) = (self.take(out), self.take("gg"), self.take("gbeta"));
        let mut workspace = std::mem::take(&mut self.workspace);
        let norm = LayerNorm { rows: B * self.n, width: D, eps: 1e-5 };
        norm.backward(
            self.get("gamma"),
            self.get(x),
            self.get(dy),
            &mut c,
            (&mut gg, &mut gbeta),
            &mut workspace,
        );
        self.put(out, c);
        self.put("gg", gg);
        self.put("gbeta", gbeta);
        self.workspace = workspace;
    }

    pub fn forward(&mut self) {
        for (out, w) in [("q", "wq"), ("k", "wk"), ("v", "wv")] {
            self.product(out, Into::Set, "x", w, [D, D], false, true);
        }
        self.norm("kn", "k");
        self.norm("vn", "v");
        for (out, features) in [("qc", "q"), ("kc", "kn"), ("vc", "vn")] {
            self.join(out, features);
        }
        self.per_sample("att", "kc", "vc");
        self.apply("o", "qc", "att", false);
        self.product("a", Into::Set, "o", "wo", [W, D], false, true);
        self.map("x1", "x", "a", |x, a| x + a);
        self.product("z", Into::Set, "x1", "w1", [D, F], false, true);
        self.map("h", "z", "z", |z, _| z.max(0.0));
        self.product("f", Into::Set, "h", "w2", [F, D], false, true);
        self.map("y", "x1", "f", |x, f| x + f);
    }

    pub fn backward(&mut self) {
        self.weight_gradient("g2", "h", "dy", [F, D]);
        self.product("dh", Into::Set, "dy", "w2", [D, F], true, false);
        self.map("dz", "dh", "z", |g, z| if z > 0.0 { g } else { 0.0 });
        self.weight_gradient("g1", "x1", "dz", [D, F]);
        self.map("dx1", "dy", "dy", |g, _| g);
        self.product("dx1", Into::Add, "dz", "w1", [F, D], true, false);
        self.weight_gradient("go", "o", "dx1", [W, D]);
        self.product("do", Into::Set, "dx1", "wo", [D, W], true, false);
        self.apply("dqc", "do", "att", true);
        self.per_sample("datt", "qc", "do");
        self.apply("dkc", "vc", "datt", true);
        self.apply("dvc", "kc", "datt", false);
        for (out, joined) in [("dq", "dqc"), ("dkn", "dkc"), ("dvn", "dvc")] {
            self.split(out, joined);
        }
        self.norm_backward("dk", "k", "dkn");
        self.norm_backward("dv", "v", "dvn");
        self.map("dx", "dx1", "dx1", |g, _| g);
        for (g, w, grad) in [("dq", "wq", "gq"), ("dk", "wk", "gk"), ("dv", "wv", "gv")] {
            self.weight_gradient(grad, "x", g, [D, D]);
            self.product("dx", Into::Add, g, w, [D, D], true, false);
        }
    }
}
