//! Memory of large tensors that nobody holds any more, for the next ones of their length.
//!
//! New memory is cleared by the system or by the allocator, on one thread, before a kernel overwrites every value of it on all of
//! them. Only as many tensors of a length are kept as were handed out of that length, so that those of Burn's own operations do
//! not pile up, and a length that was not asked for in a while is given back.

use std::cell::RefCell;

use burn::backend::{TensorMetadata, flex::FlexTensor};

/// Shorter ones cost nothing worth keeping.
const LARGE: usize = 1 << 14;
/// Requests after which a length nobody asked for is forgotten: a training step has some tens.
const OLD: u64 = 512;
/// Of one length, no more than these are kept.
const MOST: usize = 64;

thread_local! {
    static SPARE: RefCell<Spare> = RefCell::default();
}

/// As many values as asked for, whatever they are: for outputs, which kernels overwrite.
pub(super) fn take(len: usize) -> Vec<f32> {
    SPARE.with_borrow_mut(|spare| spare.take(len))
}

/// Keeps the memory of a tensor for [`take`], unless somebody else holds it.
pub(super) fn keep(tensor: FlexTensor) {
    let bytes = size_of::<f32>() * tensor.shape().num_elements();
    let whole = tensor.is_contiguous() && tensor.bytes().len() == bytes;
    if bytes < size_of::<f32>() * LARGE || !whole || !tensor.is_unique() {
        return;
    }
    // Memory that Burn aligned in its own way does not become a vector.
    let (bytes, ..) = tensor.into_data().into_parts();
    if let Ok(values) = bytes.try_into_vec::<f32>() {
        SPARE.with_borrow_mut(|spare| spare.keep(values));
    }
}

#[derive(Default)]
struct Spare {
    requests: u64,
    lengths: Vec<Length>,
}

struct Length {
    len: usize,
    /// Handed out and not come back.
    lent: usize,
    vectors: Vec<Vec<f32>>,
    /// The last request.
    asked: u64,
}

impl Spare {
    fn take(&mut self, len: usize) -> Vec<f32> {
        if len < LARGE {
            return vec![0.0; len];
        }
        self.requests += 1;
        let now = self.requests;
        let at = self.lengths.iter().position(|length| length.len == len).unwrap_or_else(|| {
            self.lengths.retain(|length| now - length.asked < OLD);
            self.lengths.push(Length { len, lent: 0, vectors: Vec::new(), asked: now });
            self.lengths.len() - 1
        });
        let length = &mut self.lengths[at];
        length.asked = now;
        length.lent = (length.lent + 1).min(MOST);
        length.vectors.pop().unwrap_or_else(|| vec![0.0; len])
    }

    fn keep(&mut self, values: Vec<f32>) {
        let length = self.lengths.iter_mut().find(|length| length.len == values.len());
        if let Some(length) = length.filter(|length| length.lent > 0) {
            length.lent -= 1;
            length.vectors.push(values);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::TensorData;

    fn tensor(values: Vec<f32>) -> FlexTensor {
        let len = values.len();
        FlexTensor::from_data(TensorData::new(values, [len]))
    }

    #[test]
    fn memory_comes_back_unless_somebody_holds_it() {
        let mut vector = take(LARGE);
        vector.fill(7.0);
        let one = tensor(vector);
        keep(one.clone());
        assert_eq!(take(LARGE)[0], 0.0, "one holds it");
        keep(one);
        assert_eq!(take(LARGE + 1)[0], 0.0);
        assert_eq!(take(LARGE)[0], 7.0);
    }

    #[test]
    fn no_more_is_kept_than_was_handed_out() {
        let kept = |spare: &Spare| spare.lengths.iter().map(|length| length.vectors.len()).sum::<usize>();
        let mut spare = Spare::default();
        spare.keep(vec![0.0; LARGE]);
        assert_eq!(kept(&spare), 0, "of a length nobody asked for");
        let lent = [spare.take(LARGE), spare.take(LARGE)];
        (0..5).for_each(|_| spare.keep(vec![0.0; LARGE]));
        lent.into_iter().for_each(|vector| spare.keep(vector));
        assert_eq!(kept(&spare), 2);
    }

    #[test]
    fn lengths_out_of_use_are_forgotten() {
        let mut spare = Spare::default();
        for len in [LARGE, LARGE + 1] {
            let vector = spare.take(len);
            spare.keep(vector);
        }
        for len in (0..OLD).map(|_| LARGE + 1).chain([LARGE + 2]) {
            drop(spare.take(len));
        }
        let lengths: Vec<usize> = spare.lengths.iter().map(|length| length.len).collect();
        assert_eq!(lengths, [LARGE + 1, LARGE + 2]);
    }
}
