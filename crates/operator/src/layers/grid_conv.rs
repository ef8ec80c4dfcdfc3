//! Convolution with the nearest neighbours on grids of one and two axes, periodic or closed.

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::{Activation, Linear, Mode, check_sizes};
use crate::error::{Error, Result};
use crate::init::Builder;
use crate::ops;
use crate::reference::{Entry, Layout, ReferenceNames};

/// y = act(drop(conv(x) + b)) with 3 taps along every axis: round periodic axes, zeros beyond the ends of closed ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GridConvConfig {
    /// Axes of the grid, 1 or 2.
    pub axes: usize,
    /// Channels of x.
    pub inputs: usize,
    /// Channels of y.
    pub outputs: usize,
    /// Deviation of the initial weights times the square root of the values that a weight's sum has.
    pub gain: f64,
}

/// See [`GridConvConfig`].
#[derive(Module, Debug)]
pub struct GridConv {
    /// The weights.
    pub taps: Taps,
    layer: u32,
}

/// Weights of a convolution.
#[derive(Module, Debug)]
pub enum Taps {
    /// On a line: a linear layer of a point and its two neighbours, side by side. The product is the convolution's own; an image one pixel wide
    /// would have three times as many, two of them with zeros.
    Line(Linear),
    /// On a square.
    Square(SquareTaps),
}

/// Weights of a 3 × 3 convolution.
#[derive(Module, Debug)]
pub struct SquareTaps {
    /// (3, 3, inputs, outputs)
    pub weight: Param<Tensor<4>>,
    /// (outputs)
    pub bias: Param<Tensor<1>>,
}

impl GridConvConfig {
    /// Weights uniform, with the deviation that the gain says; biases zero.
    pub fn init(&self, builder: &mut Builder) -> Result<GridConv> {
        let Self { axes, inputs, outputs, gain } = *self;
        check_sizes("convolution", &[("inputs", inputs), ("outputs", outputs)])?;
        let bound = gain * (3.0 / (self.taps() * inputs) as f64).sqrt();
        let taps = match axes {
            1 => Taps::Line(Linear {
                weight: builder.uniform([3 * inputs, outputs], -bound, bound),
                bias: builder.constant([outputs], 0.0),
            }),
            2 => Taps::Square(SquareTaps {
                weight: builder.uniform([3, 3, inputs, outputs], -bound, bound),
                bias: builder.constant([outputs], 0.0),
            }),
            _ => return Err(Error::setting(format!("convolution on {axes} axes"), "there are 1 or 2")),
        };
        Ok(GridConv { taps, layer: builder.layer() })
    }

    /// Points that a value of y looks at.
    pub(crate) fn taps(&self) -> usize {
        3usize.pow(self.axes as u32)
    }
}

impl GridConv {
    /// On the points of a grid, the last axis running fastest.
    ///
    /// # Shapes
    ///
    /// - x: (B, n, inputs), n the points of `grid`
    /// - y: (B, n, outputs)
    pub fn forward(
        &self,
        x: Tensor<3>,
        grid: &[usize],
        periodic: &[bool],
        activation: Activation,
        rate: f64,
        mode: Mode,
    ) -> Result<Tensor<3>> {
        let [batch, n, c] = x.dims();
        let dropout = mode.dropout(rate, self.layer);
        match (&self.taps, grid, periodic) {
            (Taps::Line(linear), [_], &[periodic]) => {
                let joined = with_neighbours(x, periodic);
                match dropout.active() {
                    false => linear.forward(joined, activation),
                    true => {
                        let z = linear.forward(joined, Activation::None)?;
                        Ok(ops::activate(z, dropout, activation.into()))
                    }
                }
            }
            (Taps::Square(SquareTaps { weight, bias }), &[n1, n2], &[first, second]) if n == n1 * n2 => {
                let mut x = x.reshape([batch, n1, n2, c]);
                for (axis, _) in [first, second].into_iter().enumerate().filter(|(_, periodic)| *periodic) {
                    x = wrapped(x, axis + 1);
                }
                let dropout = Some(dropout).filter(|dropout| dropout.active());
                let mut y = ops::conv3x3(x, weight.val(), Some(bias.val()), dropout, activation.into())?;
                for (axis, points, periodic) in [(1, n1, first), (2, n2, second)] {
                    if periodic {
                        y = y.narrow(axis, 1, points);
                    }
                }
                let outputs = y.dims()[3];
                Ok(y.reshape([batch, n, outputs]))
            }
            _ => Err(Error::Shape {
                what: "convolution x".into(),
                expected: format!("points of the grid {grid:?}"),
                found: vec![batch, n, c],
            }),
        }
    }
}

/// [left neighbour | point | right neighbour] at every point of a line, (B, n, 3c).
fn with_neighbours(x: Tensor<3>, periodic: bool) -> Tensor<3> {
    let [batch, n, c] = x.dims();
    let (first, last) = match periodic {
        true => (x.clone().narrow(1, 0, 1), x.clone().narrow(1, n - 1, 1)),
        false => {
            let zeros = Tensor::zeros([batch, 1, c], &x.device());
            (zeros.clone(), zeros)
        }
    };
    let wide = Tensor::cat(vec![last, x.clone(), first], 1);
    Tensor::cat(vec![wide.clone().narrow(1, 0, n), x, wide.narrow(1, 2, n)], 2)
}

/// An image with the last line of an axis before its first and the first behind its last.
fn wrapped(x: Tensor<4>, axis: usize) -> Tensor<4> {
    let n = x.dims()[axis];
    let (first, last) = (x.clone().narrow(axis, 0, 1), x.clone().narrow(axis, n - 1, 1));
    Tensor::cat(vec![last, x, first], axis)
}

impl ReferenceNames for GridConv {
    fn entries(&self, prefix: &str) -> Vec<Entry> {
        match &self.taps {
            Taps::Line(linear) => linear.entries(prefix),
            Taps::Square(SquareTaps { weight, bias }) => {
                let [_, _, inputs, outputs] = weight.val().dims();
                vec![
                    Entry::one(weight, format!("{prefix}weight"), Layout::Conv3x3 { inputs, outputs }),
                    Entry::plain(bias, format!("{prefix}bias")),
                ]
            }
        }
    }
}
