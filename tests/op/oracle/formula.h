// The small formulas that several ops share, in float64, as model.md 2.1 writes them.
#pragma once

#include <vector>

#include "tests/support/compare.h"
#include "tests/support/random.h"

namespace strata::test {

// Of a norm: so large that a kernel which puts it elsewhere, or uses another, is seen to.
float random_epsilon(Random& random);

double sigmoid(double x);
double silu(double x);
double softplus(double x);

Row silu(const Row& x);
Row multiply(const Row& a, const Row& b);
double dot(const Row& a, const Row& b);
// x[first .. first+n-1]
Row part(const Row& x, std::int64_t first, std::int64_t n);

// v / sqrt(mean(v^2) + epsilon) * gain, gain[offset ..] for the values of v.
Row rms_norm(const Row& v, const std::vector<float>& gain, double epsilon, std::int64_t offset = 0);
// The same for each of `streams` equal parts of v by itself.
Row grouped_rms_norm(const Row& v, const std::vector<float>& gain, double epsilon, int streams);

// Rows of a causal convolution: taps.row(ch) holds K values a channel, the last multiplying the
// current row; row t of the result reads rows t, t - dilation, ... of `rows`, whose first
// `history` rows lie before the window and are themselves not in the result.
Rows causal_convolution(const Rows& rows, std::int64_t history, const std::vector<float>& taps,
                        int kernel, int dilation);

// residual[t, s, :] += inject[t, s] * out[t, :]
void write_streams(Rows& residual, const Rows& out, const Rows& inject);

}  // namespace strata::test
