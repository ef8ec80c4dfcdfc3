//! The encoder layer: attention, residual, feed-forward network, residual.
//!
//! ```text
//! t₁ = x ± drop(Attn(x))        x₁ = LN₁(t₁) or t₁
//! t₂ = x₁ + drop(FFN(x₁))       y  = LN₂(t₂) or t₂        FFN(x) = drop(act(x W₁ + b₁)) W₂ + b₂
//! ```

use crate::activation::Activation;
use crate::attention::{self, Apply, Attention, Input, Tail, Tile};
use crate::dims::{check_len, cut, take, taking};
use crate::dropout::{Dropout, Site};
use crate::feed_forward::FeedForward;
use crate::gemm::Into;
use crate::norm::{normalize_groups, normalize_groups_backward};
use crate::parameters::parameters;
use crate::tile::{
    add, add_and_scale, add_column_dots, add_column_sums, scale_columns, set_affine, set_scaled,
    set_scaled_by,
};

/// Shapes and options of an encoder layer.
#[derive(Clone, Copy, Debug)]
pub struct EncoderLayer {
    /// The attention, with B, n, d.
    pub attention: Attention,
    /// f, width of the FFN's hidden layer.
    pub hidden: usize,
    /// The FFN's activation.
    pub activation: Activation,
    /// Whether a layer norm over d follows each residual (LN₁, LN₂).
    pub norm_after: bool,
    /// ε of LN₁ and LN₂.
    pub eps: f32,
    /// Whether the attention is taken away from x instead of added.
    pub minus: bool,
    /// Dropout rate before both residuals; 0 outside training.
    pub residual_dropout: f32,
    /// Dropout rate on the FFN's hidden layer; 0 outside training.
    pub hidden_dropout: f32,
}

parameters! {
    /// Parameters, W stored (in, out), or one thing for each of them.
    pub struct Parameters [
        /// The attention's own.
        attention,
        /// Those of the FFN, from d to f and back to d.
        feed_forward,
    ] {
        /// (d) of LN₁; empty without `norm_after`.
        gamma_1,
        /// (d) of LN₁; empty without `norm_after`.
        beta_1,
        /// (d) of LN₂; empty without `norm_after`.
        gamma_2,
        /// (d) of LN₂; empty without `norm_after`.
        beta_2,
    }
}

impl EncoderLayer {
    /// Dropout before the first residual; the value of sample b, point j, feature c lies at position (b·n + j)·d + c.
    pub fn attention_dropout(&self) -> Dropout {
        Dropout { rate: self.residual_dropout, key: self.attention.key, site: Site::Attention }
    }

    /// Dropout on the hidden layer, at position (b·n + j)·f + c.
    pub fn hidden_dropout(&self) -> Dropout {
        Dropout { rate: self.hidden_dropout, key: self.attention.key, site: Site::Hidden }
    }

    /// Dropout before the second residual, at position (b·n + j)·d + c.
    pub fn feed_forward_dropout(&self) -> Dropout {
        Dropout { rate: self.residual_dropout, key: self.attention.key, site: Site::FeedForward }
    }
}

impl EncoderLayer {
    /// Values saved from the forward for the backward pass; see [`Attention::saved_len`].
    pub fn saved_len(&self) -> usize {
        self.attention.saved_len_with(&FeedForwardTail::new(self, &Params::default()))
    }

    /// Values of workspace that either pass needs for `threads` threads.
    pub fn workspace_len(&self, threads: usize) -> usize {
        let none = Params::default();
        let tail = FeedForwardTail::new(self, &none);
        self.attention.workspace_len_with(&tail, threads) + tail.ffn.transposed_len()
    }

    /// `out` (B, n, d), and in `saved` what [`backward`](Self::backward) needs.
    pub fn forward(
        &self,
        params: &Params,
        input: Input,
        out: &mut [f32],
        saved: &mut [f32],
        workspace: &mut [f32],
    ) {
        let tail = FeedForwardTail::new(self, params);
        self.check(params, input, saved.len(), workspace.len(), &tail);
        check_len("encoder layer out", out.len(), input.x.len(), &self.sizes());
        self.attention.forward_with(&params.attention, input, &tail, out, saved, workspace);
    }

    /// `dx` (B, n, d) and the gradients of the parameters, from `dy` (B, n, d); they are overwritten.
    #[allow(clippy::too_many_arguments)]
    pub fn backward(
        &self,
        params: &Params,
        input: Input,
        saved: &[f32],
        dy: &[f32],
        dx: &mut [f32],
        mut grads: Grads,
        workspace: &mut [f32],
    ) {
        let mut tail = FeedForwardTail::new(self, params);
        self.check(params, input, saved.len(), workspace.len(), &tail);
        check_len("encoder layer dy", dy.len(), input.x.len(), &self.sizes());
        check_len("encoder layer dx", dx.len(), input.x.len(), &self.sizes());
        grads.check("gradient of encoder layer", self.lengths(), &self.sizes());
        let (transposed, workspace) = workspace.split_at_mut(tail.ffn.transposed_len());
        tail.ffn.transpose(&params.feed_forward, transposed);
        tail.transposed = transposed;
        let (attention, own) = (&params.attention, std::mem::take(&mut grads.attention));
        let tail_grads = &mut grads.into_array();
        self.attention.backward_with(attention, input, &tail, saved, dy, dx, own, tail_grads, workspace);
    }

    /// Lengths of the parameters.
    pub fn lengths(&self) -> Parameters<usize> {
        let norm = if self.norm_after { self.attention.d } else { 0 };
        Parameters {
            attention: self.attention.lengths(),
            feed_forward: self.network().lengths(),
            gamma_1: norm,
            beta_1: norm,
            gamma_2: norm,
            beta_2: norm,
        }
    }

    /// The FFN.
    fn network(&self) -> FeedForward {
        FeedForward {
            rows: self.attention.batch * self.attention.n,
            inputs: self.attention.d,
            hidden: self.hidden,
            outputs: self.attention.d,
            activation: self.activation,
            dropout: self.hidden_dropout,
            key: self.attention.key,
        }
    }

    fn sizes(&self) -> [(&'static str, usize); 6] {
        let [b, n, d, h, p] = self.attention.sizes();
        [b, n, d, h, p, ("hidden", self.hidden)]
    }

    fn check(&self, params: &Params, input: Input, saved: usize, workspace: usize, tail: &FeedForwardTail) {
        assert!(self.hidden > 0, "encoder layer: the hidden width is zero: {:?}", self.sizes());
        let own = tail.ffn.transposed_len();
        self.attention.check(&params.attention, input, saved, workspace.saturating_sub(own), tail);
        params.check("encoder layer", self.lengths(), &self.sizes());
    }
}

/// Everything after the attention, on one tile.
struct FeedForwardTail<'a> {
    layer: &'a EncoderLayer,
    params: &'a Params<'a>,
    ffn: FeedForward,
    /// W₁ᵀ and W₂ᵀ, for the backward pass alone.
    transposed: &'a [f32],
}

impl<'a> FeedForwardTail<'a> {
    fn new(layer: &'a EncoderLayer, params: &'a Params<'a>) -> Self {
        Self { layer, params, ffn: layer.network(), transposed: &[] }
    }

    fn sign(&self) -> f32 {
        if self.layer.minus { -1.0 } else { 1.0 }
    }

    /// x₁; with a norm after the residual also its x̂₁ and r₁.
    fn first_half(&self, tile: &Tile, x_1: &mut [f32], hat: &mut [f32], r: &mut [f32], apply: Apply) {
        let (layer, d) = (self.layer, self.layer.attention.d);
        let t_1 = if layer.norm_after { &mut *hat } else { &mut *x_1 };
        let mask = layer.attention_dropout();
        if mask.active() {
            apply(None, self.sign(), t_1);
            mask.apply((tile.first * d) as u64, t_1);
            add(t_1, tile.x);
        } else {
            apply(Some(tile.x), self.sign(), t_1);
        }
        if layer.norm_after {
            normalize_groups(hat, &[], d, layer.eps, r);
            set_scaled(x_1, hat, self.params.gamma_1, self.params.beta_1);
        }
    }

    /// t₂ = x₁ + drop(FFN(x₁)), with the hidden layer filled already.
    fn second_half(&self, tile: &Tile, x_1: &[f32], hidden: &[f32], t_2: &mut [f32]) {
        let mask = self.layer.feed_forward_dropout();
        let base = if mask.active() { None } else { Some(x_1) };
        set_affine(t_2, base, 1.0, self.params.feed_forward.b_2, &[], &[]);
        self.ffn.output_tile(&self.params.feed_forward, hidden, t_2);
        if mask.active() {
            mask.apply((tile.first * self.layer.attention.d) as u64, t_2);
            add(t_2, x_1);
        }
    }

    /// Lengths of the parameters: those of the layer but the attention's, which are no affair of the tail.
    fn lengths(&self) -> Parameters<usize> {
        Parameters { attention: attention::Parameters::default(), ..self.layer.lengths() }
    }

    /// Lengths of the parts of a record of `rows` rows: x₁, the hidden layer; and with norms after the residuals x̂₁, x̂₂, r₁, r₂.
    fn record_lens(&self, rows: usize) -> [usize; 6] {
        let (d, norm) = (self.layer.attention.d, if self.layer.norm_after { rows } else { 0 });
        [rows * d, rows * self.ffn.hidden_len(), norm * d, norm * d, norm, norm]
    }
}

impl Tail for FeedForwardTail<'_> {
    fn record_len(&self) -> usize {
        self.record_lens(1).iter().sum()
    }

    fn tile_len(&self, rows: usize) -> usize {
        rows * (self.layer.attention.d + self.layer.hidden)
    }

    fn grads_len(&self) -> usize {
        self.lengths().total()
    }

    fn record(&self, tile: &Tile, mut record: &mut [f32], apply: Apply) {
        let [x_1, hidden, hat_1, hat_2, r_1, r_2] =
            self.record_lens(tile.rows).map(|len| take(&mut record, len));
        self.first_half(tile, x_1, hat_1, r_1, apply);
        self.ffn.hidden_tile(&self.params.feed_forward, tile.first, x_1, hidden);
        if self.layer.norm_after {
            self.second_half(tile, x_1, hidden, hat_2);
            normalize_groups(hat_2, &[], self.layer.attention.d, self.layer.eps, r_2);
        }
    }

    fn forward(&self, tile: &Tile, record: &mut [f32], out: &mut [f32], apply: Apply) {
        self.record(tile, record, apply);
        let [x_1, hidden, _, hat_2, ..] = cut(record, self.record_lens(tile.rows));
        if self.layer.norm_after {
            set_scaled(out, hat_2, self.params.gamma_2, self.params.beta_2);
        } else {
            self.second_half(tile, x_1, hidden, out);
        }
    }

    fn backward<'a>(
        &self,
        tile: &Tile,
        record: &[f32],
        dy: &'a [f32],
        dx: &mut [f32],
        grads: &mut [f32],
        scratch: &'a mut [f32],
    ) -> &'a [f32] {
        let (layer, d, m) = (self.layer, self.layer.attention.d, tile.rows);
        let [x_1, hidden, hat_1, hat_2, r_1, r_2] = cut(record, self.record_lens(m));
        let (g, dh) = scratch.split_at_mut(m * d);
        let dh = &mut dh[..m * layer.hidden];
        let mut grads = self.lengths().map(taking(grads));

        // dx = gradient of t₂, then of x₁, then of t₁; g = that of the FFN's output, then of the attention.
        let sign = self.sign();
        if layer.norm_after || layer.feed_forward_dropout().active() {
            dx.copy_from_slice(dy);
            if layer.norm_after {
                norm_backward(hat_2, r_2, self.params.gamma_2, dx, [grads.gamma_2, grads.beta_2]);
            }
            g.copy_from_slice(dx);
            layer.feed_forward_dropout().apply((tile.first * d) as u64, g);
            self.ffn.backward_tile(
                self.transposed,
                tile.first,
                x_1,
                g,
                hidden,
                dh,
                Into::Add,
                dx,
                &mut grads.feed_forward,
            );
            if layer.norm_after {
                norm_backward(hat_1, r_1, self.params.gamma_1, dx, [grads.gamma_1, grads.beta_1]);
            }
            set_scaled_by(g, dx, sign);
        } else {
            self.ffn.backward_tile(
                self.transposed,
                tile.first,
                x_1,
                dy,
                hidden,
                dh,
                Into::Set,
                dx,
                &mut grads.feed_forward,
            );
            add_and_scale(dx, dy, sign, g);
        }
        layer.attention_dropout().apply((tile.first * d) as u64, g);
        g
    }
}

/// Through y = γ t̂ + β: adds to the gradients of γ and β, and turns that of y into that of t, in place.
fn norm_backward(hat: &[f32], r: &[f32], gamma: &[f32], g: &mut [f32], [dgamma, dbeta]: [&mut [f32]; 2]) {
    add_column_dots(g, hat, dgamma);
    add_column_sums(g, dbeta);
    scale_columns(g, gamma);
    normalize_groups_backward(hat, r, g, gamma.len());
}
