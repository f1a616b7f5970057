#include "tests/op/oracle/formula.h"

#include <cmath>

namespace strata::test {

float random_epsilon(Random& random) { return static_cast<float>(random.uniform(0.01, 0.1)); }

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double silu(double x) { return x * sigmoid(x); }

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

Row silu(const Row& x) {
    Row y;
    for (const double value : x) y.push_back(silu(value));
    return y;
}

Row multiply(const Row& a, const Row& b) {
    Row y;
    for (std::size_t i = 0; i < a.size(); ++i) y.push_back(a[i] * b[i]);
    return y;
}

double dot(const Row& a, const Row& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

Row part(const Row& x, std::int64_t first, std::int64_t n) {
    return {x.begin() + first, x.begin() + first + n};
}

Row rms_norm(const Row& v, const std::vector<float>& gain, double epsilon, std::int64_t offset) {
    const double scale = 1 / std::sqrt(dot(v, v) / static_cast<double>(v.size()) + epsilon);
    Row y;
    for (std::size_t i = 0; i < v.size(); ++i) y.push_back(v[i] * scale * gain[offset + i]);
    return y;
}

Row grouped_rms_norm(const Row& v, const std::vector<float>& gain, double epsilon, int streams) {
    const std::int64_t width = static_cast<std::int64_t>(v.size()) / streams;
    Row y;
    for (int s = 0; s < streams; ++s) {
        append(y, rms_norm(part(v, s * width, width), gain, epsilon, s * width));
    }
    return y;
}

Rows causal_convolution(const Rows& rows, std::int64_t history, const std::vector<float>& taps,
                        int kernel, int dilation) {
    Rows result;
    for (std::int64_t t = history; t < static_cast<std::int64_t>(rows.size()); ++t) {
        Row y;
        for (std::size_t ch = 0; ch < rows[t].size(); ++ch) {
            double sum = 0;
            for (int j = 0; j < kernel; ++j) {
                sum += taps[ch * kernel + j] * rows[t - dilation * (kernel - 1 - j)][ch];
            }
            y.push_back(sum);
        }
        result.push_back(y);
    }
    return result;
}

void write_streams(Rows& residual, const Rows& out, const Rows& inject) {
    for (std::size_t t = 0; t < residual.size(); ++t) {
        for (std::size_t s = 0; s < inject[t].size(); ++s) {
            for (std::size_t c = 0; c < out[t].size(); ++c) {
                residual[t][s * out[t].size() + c] += inject[t][s] * out[t][c];
            }
        }
    }
}

}  // namespace strata::test
