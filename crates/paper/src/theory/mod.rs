//! The paper's theorems in numbers: attention as a Petrov–Galerkin projection, its stability, its quasi-optimality.
//!
//! | module | what | in the paper |
//! | --- | --- | --- |
//! | [`projection`] | Q(KᵀV)/n with updated matrices is the projection | equation `attention-update`, Theorem 4.4 |
//! | [`stability`] | the lower bound c on 64 to 65,536 points, with layer norm and with softmax | Lemma `lower-bound` and its remark |
//! | [`cea`] | the Céa-type inequality for thousands of functions, and in the layers of a model | Theorem 4.3 |
//! | [`report`] | all of it, in tables | |
//!
//! # Letters
//!
//! y (n, d) is a latent representation, Q = y W_Q, K = y W_K, V = y W_V; a column is a function on the n points. The weight of a
//! point, the paper's hᵐ, is 1/n, and with it all the paper's forms are one (its D₁₂ and `norm-discrete`):
//!
//! b(v, q) = a(v, q) = ⟨v, q⟩ = vᵀq/n, and every norm is ‖v‖² = ⟨v, v⟩.
//!
//! The proof gives the matrices other names than attention does. *Values* are the space Q_h the output lies in, spanned by Q and of
//! dimension r. *Keys* are the space of test functions: V_h, spanned by V, in Theorem 4.3; K_h, spanned by K, in Theorem 4.4, where V holds the
//! queries. Keys have dimension s ≥ r. For bases q₁ … q_r and v₁ … v_s
//!
//! B (r, s) = (b(v_j, q_i)), M (s, s) = (⟨v_j, v_i⟩), ζ = (b(v_j, f)),
//!
//! and the projection of f is p = Σ λ_i q_i, where (μ, λ) solves the saddle-point system M μ + Bᵀλ = ζ, B μ = 0. It minimises
//! max_v b(v, f − q)/‖v‖ over q in Q_h. The projection exists where b is bounded below: c‖q‖ ≤ max_v b(v, q)/‖v‖ with a c > 0.
//!
//! # What holds as printed, and what does not
//!
//! - Equation `attention-update` holds as printed, for every f and not for f_h alone.
//! - If Q and V come from the same y and both y and W_V have full rank, as the theorem assumes, then Q_h lies in V_h: take v = q to see that
//!   the best c is 1 and the projection is the orthogonal one. It is oblique once a norm or a softmax stands behind W_V.
//! - Layer norm without a bias makes the features of a point sum to zero: V_h has d − 1 dimensions at most. Likewise the latent functions of
//!   a first layer that is linear in its inputs span no more than inputs + 1 dimensions. Both are outside the assumption rank V = d; the
//!   formulas hold with a basis of the space in the place of all columns.
//! - The first term of the bound of Theorem 4.3, min_q max_v |b(v, f_h − q)|/‖v‖, is always 0: f_h is in Q_h, so q = f_h is allowed. The
//!   theorem then says that attention can represent the best approximation, and no more. With f in the place of f_h the bound is wrong.
//!   What holds for the projection p of f itself is ‖f − p‖ ≤ c⁻¹ max_v |b(v, f − f_h)|/‖v‖ + ‖f − f_h‖, and ‖f − p‖ ≤ c⁻¹‖f − f_h‖.
//! - The proof of Theorem 4.4 prints z = QUW̃(KᵀV)/n with W̃ = (QUΛ)ᵀ(VM⁻¹) and the matrices of Theorem 4.3. That needs K in the place of V
//!   in W̃, B and M, and one more factor 1/n.
//! - A softmax over the points divides keys by n, and with them B and c_V: their quotient c does not depend on n. It falls like 1/n where
//!   test functions after the softmax are measured by their norm before it, which is how the remark on softmax reads. (Linear attention as
//!   the models have it divides by n once more, so that its output falls like 1/n.)
//!
//! All is in f64 and on one thread, with `faer`.

pub mod cea;
pub mod projection;
pub mod report;
mod space;
pub mod stability;

use faer::{Mat, MatRef};
use galerkin_data::random::{Purpose, Stream};

/// Galerkin attention as the paper writes it, Q(KᵀV)/n: without bias, norms and coordinates.
fn attention(q: MatRef<f64>, k: MatRef<f64>, v: MatRef<f64>) -> Mat<f64> {
    q * mean_product(k, v)
}

/// (⟨a_i, b_j⟩) = AᵀB/n.
fn mean_product(a: MatRef<f64>, b: MatRef<f64>) -> Mat<f64> {
    a.transpose() * b * faer::Scale(1.0 / a.nrows() as f64)
}

/// Independent standard normal numbers, a function of seed and index.
fn normal_matrix(seed: u64, index: u32, rows: usize, columns: usize) -> Mat<f64> {
    let mut values = vec![0.0; rows * columns];
    Stream { seed, purpose: Purpose::Theory, index }.normals(&mut values);
    MatRef::from_row_major_slice(&values, rows, columns).to_owned()
}
