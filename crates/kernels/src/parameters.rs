//! The parameters of an operation, written down once: a struct with one thing for each of them.

/// Makes `Parameters<S>` from one list of fields: slices, gradients, lengths, names, or whatever else there is one of for each parameter.
///
/// Groups, in brackets, are the `Parameters` of the modules of their names, in front of the fields. The order of the fields is the order of every list:
/// partial sums of gradients in a workspace, tensors of a call.
macro_rules! parameters {
    (
        $(#[$doc:meta])*
        pub struct Parameters $([ $($(#[$group_doc:meta])* $group:ident,)+ ])? {
            $($(#[$field_doc:meta])* $field:ident,)+
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Parameters<S> {
            $($($(#[$group_doc])* pub $group: crate::$group::Parameters<S>,)+)?
            $($(#[$field_doc])* pub $field: S,)+
        }

        /// Parameters, row-major. `T` is f64 for the reference.
        pub type Params<'a, T = f32> = Parameters<&'a [T]>;

        /// Gradients of the parameters; they are overwritten.
        pub type Grads<'a> = Parameters<&'a mut [f32]>;

        impl Parameters<()> {
            /// How many there are.
            pub const COUNT: usize = $($(crate::$group::Parameters::<()>::COUNT +)+)? [$(stringify!($field)),+].len();
        }

        impl Parameters<&'static str> {
            /// The names of the fields.
            pub const NAMES: Self = Self {
                $($($group: crate::$group::Parameters::<&'static str>::NAMES,)+)?
                $($field: stringify!($field),)+
            };
        }

        impl Parameters<usize> {
            /// Their sum: of lengths, the values of all parameters together.
            pub fn total(self) -> usize {
                self.into_array().iter().sum()
            }
        }

        impl<S> Parameters<S> {
            /// What `f` makes of each, called in the order of the fields.
            pub fn map<U>(self, mut f: impl FnMut(S) -> U) -> Parameters<U> {
                Parameters {
                    $($($group: self.$group.map(&mut f),)+)?
                    $($field: f(self.$field),)+
                }
            }

            /// Each beside its like.
            pub fn zip<U>(self, other: Parameters<U>) -> Parameters<(S, U)> {
                Parameters {
                    $($($group: self.$group.zip(other.$group),)+)?
                    $($field: (self.$field, other.$field),)+
                }
            }

            /// All of them, borrowed.
            pub fn each_ref(&self) -> Parameters<&S> {
                Parameters {
                    $($($group: self.$group.each_ref(),)+)?
                    $($field: &self.$field,)+
                }
            }

            /// All of them, borrowed for writing.
            pub fn each_mut(&mut self) -> Parameters<&mut S> {
                Parameters {
                    $($($group: self.$group.each_mut(),)+)?
                    $($field: &mut self.$field,)+
                }
            }

            /// All of them in the order of the fields.
            pub fn into_array(self) -> [S; Parameters::<()>::COUNT] {
                let fields = [$(self.$field),+].into_iter();
                let mut all = std::iter::empty()$($(.chain(self.$group.into_array()))+)?.chain(fields);
                std::array::from_fn(|_| all.next().expect("as many as are counted"))
            }
        }

        impl<S: AsRef<[f32]>> Parameters<S> {
            /// Panics unless each has its length; the message names the operation, the parameter and every size.
            pub(crate) fn check(&self, what: &str, lengths: Parameters<usize>, sizes: &[(&str, usize)]) {
                Parameters::NAMES.zip(self.each_ref()).zip(lengths).map(|((name, slice), expected)| {
                    crate::dims::check_field(what, name, slice.as_ref().len(), expected, sizes)
                });
            }
        }
    };
}
pub(crate) use parameters;

#[cfg(test)]
mod tests {
    use crate::{attention, encoder, feed_forward, linear};

    #[test]
    fn every_list_has_the_order_of_the_fields_with_groups_in_front() {
        let mut count = 0;
        let places = encoder::Parameters::NAMES.map(|_| {
            count += 1;
            count - 1
        });
        assert_eq!(count, encoder::Parameters::COUNT);
        assert_eq!(places.into_array(), std::array::from_fn(|place| place));
        assert_eq!((places.attention.w_q, places.attention.b_o), (0, attention::Parameters::COUNT - 1));
        assert_eq!(places.feed_forward.w_1, attention::Parameters::COUNT);
        assert_eq!(places.gamma_1, attention::Parameters::COUNT + feed_forward::Parameters::COUNT);
        assert_eq!(places.total(), count * (count - 1) / 2);
    }

    #[test]
    fn names_values_and_loans_keep_together() {
        let mut params = linear::Parameters { w: vec![1.0, 2.0], b: vec![3.0] };
        params.each_mut().map(|values| values.push(0.0));
        let named = linear::Parameters::NAMES.zip(params.each_ref().map(|values| values.len()));
        assert_eq!(named, linear::Parameters { w: ("w", 3), b: ("b", 2) });
    }

    #[test]
    #[should_panic(expected = "gradient of linear b: expected 4 values, found 1 (outputs = 4)")]
    fn a_wrong_length_names_the_parameter() {
        let params = linear::Parameters { w: vec![1.0, 2.0], b: vec![3.0] };
        params.check("gradient of linear", linear::Parameters { w: 2, b: 4 }, &[("outputs", 4)]);
    }
}
