// Weight matrices in every format, with the values that an oracle is to use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "quant/type.h"
#include "tests/support/compare.h"
#include "tests/support/random.h"

namespace strata::test {

// Types that multiply their input as it is, so that an oracle follows every op that uses them.
inline constexpr quant::Type kWeightTypes[] = {quant::Type::f32, quant::Type::f16,
                                               quant::Type::bf16};

// Types that round their input. Where that input is itself the result of F32 operations, one of its
// values in a thousand or so rounds to the other side of a tie.
inline constexpr quant::Type kBlockTypes[] = {
    quant::Type::q8_0,    quant::Type::q4_0,    quant::Type::q5_0,   quant::Type::q5_1,
    quant::Type::q2_0,    quant::Type::iq4_nl,  quant::Type::mxfp4,  quant::Type::nvfp4,
    quant::Type::q2_k,    quant::Type::q3_k,    quant::Type::q4_k,   quant::Type::q5_k,
    quant::Type::q6_k,    quant::Type::iq2_xxs, quant::Type::iq2_xs, quant::Type::iq2_s,
    quant::Type::iq3_xxs, quant::Type::iq3_s,   quant::Type::iq1_m,  quant::Type::iq4_xs};

// Of tables, whose rows are only decoded.
inline constexpr quant::Type kTableTypes[] = {quant::Type::f32, quant::Type::f16, quant::Type::bf16,
                                              quant::Type::q8_0, quant::Type::q4_0};

// A matrix [rows, cols] as stored (`bytes`), and what the stored bytes decode to (`values`).
struct TestWeight {
    quant::Type type = quant::Type::f32;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::vector<std::byte> bytes;
    std::vector<float> values;
    float factor = 1;  // of products, as op/weight.h says

    bool empty() const { return bytes.empty(); }
    const float* row(std::int64_t r) const { return values.data() + r * cols; }
    std::int64_t row_bytes() const { return static_cast<std::int64_t>(bytes.size()) / rows; }
};

// `cols` must be a multiple of the type's block.
TestWeight make_weight(quant::Type type, std::int64_t rows, std::int64_t cols,
                       const std::vector<float>& values);
// Values of about 1 / sqrt(cols), so that a product keeps the size of its input.
TestWeight random_weight(Random& random, quant::Type type, std::int64_t rows, std::int64_t cols);
// Of any type of kBlockTypes: every bit of the codes random, scales of either sign and many sizes.
TestWeight random_blocks(Random& random, quant::Type type, std::int64_t rows, std::int64_t cols);
TestWeight zero_weight(std::int64_t rows, std::int64_t cols);

// The types that the matrices of one case take, in the order in which they are asked for.
class Types {
  public:
    explicit Types(quant::Type only) : only_(only), mixed_(false) {}
    static Types mixed() { return Types(); }

    quant::Type next() { return mixed_ ? kWeightTypes[asked_++ % std::size(kWeightTypes)] : only_; }

  private:
    Types() : only_(quant::Type::f32), mixed_(true) {}

    quant::Type only_;
    bool mixed_;
    std::size_t asked_ = 0;
};

// While one lives, product() and the calls of ops (rig.h) take the prompt route of op/weight.h.
class PromptRoute {
  public:
    PromptRoute() { on_ = true; }
    PromptRoute(const PromptRoute&) = delete;
    PromptRoute& operator=(const PromptRoute&) = delete;
    ~PromptRoute() { on_ = false; }

    static bool on() { return on_; }

  private:
    static inline bool on_ = false;
};

// W x, in float64 but for the rounding of x, or x and W, that op/weight.h asks for.
Row product(const TestWeight& weight, const Row& x);
// The same where an op says that x is not rounded.
Row exact_product(const TestWeight& weight, const Row& x);

}  // namespace strata::test
