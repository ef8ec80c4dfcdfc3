//! Arrays as files hold them: a shape and its values.

/// Values of a shape, row-major.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Array {
    /// Length of every axis.
    pub shape: Vec<usize>,
    /// The values; as many as the product of the shape.
    pub values: Vec<f32>,
}
