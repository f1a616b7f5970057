// What a step must read, against the sizes of the tensors that the file holds.
#include "bench/work.h"

#include <gtest/gtest.h>

#include "bench/draft_work.h"
#include "gguf/writer.h"
#include "model/weights.h"
#include "strata/synth.h"
#include "tests/support/temp_dir.h"

namespace strata::bench {
namespace {

struct Made {
    test::TempDir folder;
    std::optional<gguf::File> file;
    model::Config config;

    explicit Made(SynthRequest request) {
        request.preset = "tiny";
        request.output = folder / "m.gguf";
        STRATA_CHECK(synthesize_model(request).ok());
        file = gguf::File::open(request.output).value();
        config = model::config_from_gguf(*file).value();
    }
    double bytes_of(const std::string& name) const {
        return static_cast<double>(file->find_tensor(name)->data.size());
    }
    double values_of(const std::string& name) const {
        return static_cast<double>(file->find_tensor(name)->elements());
    }
    std::vector<std::int64_t> experts(std::int64_t count) const {
        return std::vector<std::int64_t>(static_cast<std::size_t>(config.layers), count);
    }
};

TEST(Work, reading_every_expert_is_reading_the_whole_file_but_the_tables_and_mtp) {
    for (const bool mtp : {false, true}) {
        SynthRequest request;
        request.mtp = mtp;
        request.type = "q8_0";
        const Made made(request);
        const WorkCount count(*made.file, made.config, op::CacheType::f16);
        const Work work = count.step({0, 3, 1}, made.experts(made.config.experts));
        double all = 0;
        const std::string mtp_block = "blk." + std::to_string(made.config.layers) + ".";
        for (const gguf::Tensor& tensor : made.file->tensors()) {
            if (tensor.name.starts_with(mtp_block) || tensor.name == "token_embd.weight" ||
                tensor.name == "per_layer_token_embd.weight") {
                continue;
            }
            all += static_cast<double>(tensor.data.size());
        }
        EXPECT_DOUBLE_EQ(work.bytes.dense + work.bytes.head + work.bytes.experts, all);
        EXPECT_EQ(work.bytes.head, made.bytes_of("output.weight"));
    }
}

TEST(Work, rows_share_weights_and_read_their_own_table_rows) {
    const Made made({});
    const WorkCount count(*made.file, made.config, op::CacheType::f16);
    const Work one = count.step({8, 1, 1}, made.experts(4));
    const Work four = count.step({8, 4, 4}, made.experts(4));
    EXPECT_EQ(four.bytes.dense, one.bytes.dense);
    EXPECT_EQ(four.bytes.head, one.bytes.head);
    EXPECT_EQ(four.bytes.experts, one.bytes.experts);
    const auto& c = made.config;
    // BF16.
    EXPECT_EQ(one.bytes.rows,
              2.0 * static_cast<double>(c.hidden + c.ngram.heads() * c.ngram.row_width));
    EXPECT_EQ(four.bytes.rows, 4 * one.bytes.rows);
    const double expert =
        (made.bytes_of("blk.0.ffn_gate_exps.weight") + made.bytes_of("blk.0.ffn_up_exps.weight") +
         made.bytes_of("blk.0.ffn_down_exps.weight")) /
        c.experts;
    EXPECT_DOUBLE_EQ(one.bytes.experts, 4 * expert * static_cast<double>(c.layers));
    EXPECT_EQ(count.step({8, 1, 0}, made.experts(4)).bytes.head, 0);
}

TEST(Work, every_row_multiplies_with_its_own_experts_and_all_dense_weights) {
    SynthRequest request;
    request.type = "q8_0";
    request.head = "f32";
    const Made made(request);
    const WorkCount count(*made.file, made.config, op::CacheType::f16);
    const auto& c = made.config;
    const MultiplyAdds one = count.step({0, 1, 1}, made.experts(c.experts_active)).multiply_adds;
    const MultiplyAdds none = count.step({0, 1, 0}, made.experts(c.experts_active)).multiply_adds;
    EXPECT_DOUBLE_EQ(one.f32 - none.f32, made.values_of("output.weight"));
    EXPECT_EQ(one.i8, none.i8);
    double i8 = 0;
    double bf16 = 0;
    for (const gguf::Tensor& tensor : made.file->tensors()) {
        const bool routed = tensor.name.find("_exps.") != std::string::npos;
        const double values = static_cast<double>(tensor.elements()) *
                              (routed ? static_cast<double>(c.experts_active) / c.experts : 1.0);
        if (tensor.name.find("token_embd") != std::string::npos) continue;
        if (tensor.type == quant::Type::q8_0) i8 += values;
        if (tensor.type == quant::Type::bf16) bf16 += values;
    }
    EXPECT_DOUBLE_EQ(one.i8, i8);
    EXPECT_DOUBLE_EQ(one.bf16, bf16);
    EXPECT_GT(bf16, 0);
}

// The same model with gate and up of its experts in one tensor, which says nothing.
gguf::File fused(const Made& made) {
    constexpr std::string_view kGate = "ffn_gate_exps";
    gguf::Writer writer;
    for (const auto& [key, value] : made.file->metadata()) writer.set(key, value);
    std::vector<std::byte> bytes;
    for (const gguf::Tensor& tensor : made.file->tensors()) {
        if (tensor.name.find("ffn_up_exps") != std::string::npos) continue;
        std::string name = tensor.name;
        auto shape = tensor.shape;
        const std::size_t at = name.find(kGate);
        if (at != std::string::npos) {
            name.replace(at, kGate.size(), "ffn_gate_up_exps");
            shape[1] *= 2;
        }
        EXPECT_TRUE(writer.add_tensor(name, tensor.type, shape).ok());
        bytes.resize(bytes.size() + tensor.data.size() * (at != std::string::npos ? 2 : 1));
    }
    const std::string path = made.folder / "fused.gguf";
    EXPECT_TRUE(writer.begin(path).ok());
    std::span<const std::byte> rest = bytes;
    for (const gguf::Tensor& tensor : made.file->tensors()) {
        if (tensor.name.find("ffn_up_exps") != std::string::npos) continue;
        const bool both = tensor.name.find(kGate) != std::string::npos;
        const std::size_t size = tensor.data.size() * (both ? 2 : 1);
        EXPECT_TRUE(writer.write_tensor_data(rest.first(size)).ok());
        rest = rest.subspan(size);
    }
    EXPECT_TRUE(writer.commit().ok());
    return gguf::File::open(path).value();
}

TEST(Work, experts_in_one_tensor_are_read_as_those_in_two) {
    SynthRequest request;
    request.mtp = true;
    request.type = "q8_0";
    const Made made(request);
    const gguf::File one = fused(made);
    const auto& c = made.config;
    const WorkCount count_of_two(*made.file, c, op::CacheType::f16);
    const WorkCount count_of_one(one, c, op::CacheType::f16);
    const Work of_two = count_of_two.step({8, 2, 1}, made.experts(4));
    const Work of_one = count_of_one.step({8, 2, 1}, made.experts(4));
    EXPECT_GT(of_one.bytes.experts, 0);
    EXPECT_DOUBLE_EQ(of_one.bytes.experts, of_two.bytes.experts);
    EXPECT_EQ(of_one.bytes.dense, of_two.bytes.dense);
    EXPECT_DOUBLE_EQ(of_one.multiply_adds.i8, of_two.multiply_adds.i8);
    const BytesRead guess_of_two = mtp_draft_bytes(*made.file, c, op::CacheType::f16, 0, 8, 1);
    const BytesRead guess_of_one = mtp_draft_bytes(one, c, op::CacheType::f16, 0, 8, 1);
    EXPECT_GT(guess_of_one.experts, 0);
    EXPECT_DOUBLE_EQ(guess_of_one.experts, guess_of_two.experts);
    EXPECT_EQ(guess_of_one.dense, guess_of_two.dense);
    EXPECT_EQ(model::weight_bytes(one, c), model::weight_bytes(*made.file, c));
}

TEST(Work, floors_are_bytes_and_multiply_adds_over_their_rates) {
    Work work;
    work.bytes = {1e6, 2e6, 3e6, 4e6, 5e6};
    work.multiply_adds = {4e6, 2e6, 1e6};
    const MachineRates rates{2, 3e9, 4e9, 2e9, 1e9};
    EXPECT_DOUBLE_EQ(work.bytes_ms(rates), 5);
    EXPECT_DOUBLE_EQ(work.multiply_adds_ms(rates), 3);
}

}  // namespace
}  // namespace strata::bench
