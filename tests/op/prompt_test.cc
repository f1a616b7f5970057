// The prompt route of op/weight.h, on the backends that have one: each op against its float64
// oracle, whose products round as the route does; and a row's bits in whatever chunk it comes.

#include <gtest/gtest.h>

#include "tests/op/run/streams.h"
#include "tests/support/everywhere.h"

namespace strata::test {
namespace {

template <typename Use>
void on_prompt_backends(Use use) {
    PromptRoute route;
    for (TestBackend& backend : backends()) {
        if (backend.backend.ops.prompts != nullptr) use(backend);
    }
}

std::vector<float> run_head(TestBackend& backend, const TestWeight& weight,
                            const std::vector<float>& x) {
    Rig rig(backend, std::string("head, ") + std::string(quant::info(weight.type).name));
    op::OutputHead args;
    args.hidden = rig.input("hidden", x, weight.cols);
    args.weight = rig.weight("weight", weight);
    args.logits = rig.output<float>("logits", args.hidden.rows, weight.rows);
    rig.ops().output_head(args, rig.queue());
    rig.finish();
    return rig.read(args.logits.data);
}

Rows products(const TestWeight& weight, const std::vector<float>& x) {
    Rows want;
    for (const Row& row : rows_of(x, weight.cols)) want.push_back(product(weight, row));
    return want;
}

TEST(Prompt, products_match_the_oracle_on_both_sides_of_a_tile) {
    on_prompt_backends([](TestBackend& backend) {
        for (const auto& [rows, outs, cols] : {std::array{1, 1, 1}, {63, 65, 33}, {65, 130, 200}}) {
            Random random("prompt products", static_cast<std::uint64_t>(rows));
            const auto weight = random_weight(random, quant::Type::f32, outs, cols);
            const auto x = random.floats(rows * cols, -2, 2);
            expect_close(backend.name + ", T=" + std::to_string(rows), run_head(backend, weight, x),
                         products(weight, x), Tolerance::projection());
        }
    });
}

TEST(Prompt, products_match_the_oracle_in_every_type) {
    on_prompt_backends([](TestBackend& backend) {
        for (const quant::Type type :
             {quant::Type::f16, quant::Type::bf16, quant::Type::q8_0, quant::Type::q4_0}) {
            Random random("prompt types", static_cast<std::uint64_t>(type));
            const auto weight = random_weight(random, type, 40, 192);
            const auto x = random.floats(3 * 192, -2, 2);
            expect_close(backend.name + std::string(quant::info(type).name),
                         run_head(backend, weight, x), products(weight, x),
                         Tolerance::projection());
        }
    });
}

TEST(Prompt, a_row_of_a_product_has_the_same_bits_in_every_chunk) {
    on_prompt_backends([](TestBackend& backend) {
        Random random("prompt chunks");
        const auto weight = random_weight(random, quant::Type::bf16, 300, 64);
        const auto x = random.floats(300 * 64, -2, 2);
        const auto together = run_head(backend, weight, x);
        for (const auto& [first, rows] : {std::pair{0, 1}, {70, 3}, {130, 70}}) {
            expect_same_bits(backend.name, run_head(backend, weight, slice(x, first, rows, 64)),
                             slice(together, first, rows, 300));
        }
    });
}

}  // namespace
}  // namespace strata::test
