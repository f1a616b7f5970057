// NVFP4 matrices with factors in tensors of their own: the model of the products of both.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "convert/draft_head.h"
#include "convert/quantize.h"
#include "gguf/writer.h"
#include "model/factors.h"
#include "tests/model/tiny_target.h"
#include "tests/support/compare.h"
#include "tests/support/random.h"

namespace strata::test {
namespace {

using quant::Type;

bool has_factors(const gguf::Tensor& tensor) {
    for (const char* part : {"attn_q.", "attn_output.", "attn_qkv.", "ssm_out.", "_exps.",
                             "_shexp.", "output.", "ffn_gate_inp."}) {
        const bool named = tensor.name.find(part) != std::string::npos;
        if (named && tensor.shape[0] % 64 == 0) return tensor.name.ends_with(".weight");
    }
    return false;
}

std::uint64_t matrices(const gguf::Tensor& tensor) {
    return tensor.shape.size() > 2 ? tensor.shape[2] : 1;
}

// Matrix `m` of a tensor has the factor 2^doublings.
int doublings(std::uint64_t m) { return 1 + static_cast<int>(m % 3); }

// Some matrices of a tiny model as random NVFP4. An E4M3 code grows by 8 where its number doubles,
// so that the factors can stand in the codes just as well.
std::string write(const TinyTarget& from, const std::string& path, bool folded) {
    const gguf::File file = gguf::File::open(from.path()).value();
    gguf::Writer writer;
    for (const auto& [key, value] : file.metadata()) writer.set(key, value);
    std::vector<std::vector<std::byte>> data;
    for (const gguf::Tensor& tensor : file.tensors()) {
        if (!has_factors(tensor)) {
            EXPECT_TRUE(writer.add_tensor(tensor.name, tensor.type, tensor.shape).ok());
            data.emplace_back(tensor.data.begin(), tensor.data.end());
            continue;
        }
        EXPECT_TRUE(writer.add_tensor(tensor.name, Type::nvfp4, tensor.shape).ok());
        Random random(tensor.name.c_str());
        const std::uint64_t blocks = tensor.elements() / 64;
        std::vector<std::byte>& bytes = data.emplace_back(blocks * 36);
        for (std::size_t i = 0; i < bytes.size(); ++i) {
            bytes[i] = std::byte(random.bits() & 255);
            if (i % 36 >= 4) continue;
            const std::uint64_t m = i / 36 / (blocks / matrices(tensor));
            bytes[i] = std::byte(8 + random.integer(0, 16) + (folded ? 8 * doublings(m) : 0));
        }
        if (folded) continue;
        const std::string stem = tensor.name.substr(0, tensor.name.size() - 7);
        std::vector<float> factors;
        for (std::uint64_t m = 0; m < matrices(tensor); ++m) {
            factors.push_back(static_cast<float>(1 << doublings(m)));
        }
        const std::uint64_t shape[] = {factors.size()};
        EXPECT_TRUE(writer.add_tensor(stem + ".scale", Type::f32, shape).ok());
        const auto stored = std::as_bytes(std::span(factors));
        data.emplace_back(stored.begin(), stored.end());
    }
    EXPECT_TRUE(writer.begin(path).ok());
    for (const auto& bytes : data) EXPECT_TRUE(writer.write_tensor_data(bytes).ok());
    EXPECT_TRUE(writer.commit().ok());
    return path;
}

class Factors : public ::testing::Test {
  protected:
    std::vector<float> logits(const std::string& path) {
        Backend backend = make_cpu_backend({.threads = 1}).value();
        auto target =
            model::Target::load(gguf::File::open(path).value(), *backend.device, backend.ops, 16);
        if (!target.ok()) {
            ADD_FAILURE() << target.error().message;
            return {};
        }
        auto sequence = (*target)->make_sequence({64, op::CacheType::f32, false}).value();
        const Tokens tokens = random_tokens("factors", 12, (*target)->config());
        model::StepRequest request;
        request.tokens = tokens;
        request.logits = model::LogitRows::all;
        const auto result = (*target)->step(sequence, request).value();
        return {result.logits.data, result.logits.data + result.logits.size()};
    }

    TinyTarget tiny_;
    TempDir folder_;
};

TEST_F(Factors, that_are_powers_of_two_give_the_bits_of_the_same_model_with_them_in_its_codes) {
    const auto apart = logits(write(tiny_, folder_ / "apart.gguf", false));
    const auto folded = logits(write(tiny_, folder_ / "folded.gguf", true));
    expect_same_bits("logits", apart, folded);
    EXPECT_NE(*std::ranges::max_element(apart), *std::ranges::min_element(apart));
    EXPECT_NE(apart, logits(tiny_.path()));
}

TEST_F(Factors, are_taken_into_the_values_of_another_format_and_kept_beside_their_own) {
    convert::QuantizeOptions options;
    options.input = write(tiny_, folder_ / "apart.gguf", false);
    options.output = folder_ / "f32.gguf";
    options.types.type = Type::f32;
    ASSERT_TRUE(convert::quantize(options).ok());
    const gguf::File from = gguf::File::open(options.input).value();
    const gguf::File to = gguf::File::open(options.output).value();
    int compared = 0;
    for (const gguf::Tensor& tensor : from.tensors()) {
        if (tensor.name.ends_with(".scale")) {
            EXPECT_EQ(to.find_tensor(tensor.name), nullptr) << tensor.name;
        }
        if (tensor.type != Type::nvfp4) continue;
        std::vector<float> want(tensor.elements());
        quant::info(tensor.type)
            .decode(tensor.data.data(), want.data(), static_cast<std::int64_t>(want.size()));
        for (std::size_t i = 0; i < want.size(); ++i) {
            want[i] *= static_cast<float>(1 << doublings(i / (want.size() / matrices(tensor))));
        }
        const auto got = to.find_tensor(tensor.name)->data;
        EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size()), 0) << tensor.name;
        ++compared;
    }
    EXPECT_GT(compared, 20);

    options.keep = true;
    options.output = folder_ / "kept.gguf";
    ASSERT_TRUE(convert::quantize(options).ok());
    expect_same_bits("kept", logits(options.output), logits(options.input));
}

std::vector<std::byte> data_of(const std::string& path, std::string_view name) {
    const gguf::File file = gguf::File::open(path).value();
    const gguf::Tensor* tensor = file.find_tensor(name);
    if (tensor == nullptr) return {};
    return {tensor->data.begin(), tensor->data.end()};
}

// The same file, one of whose tensors has its values twice.
std::string doubled(const std::string& from, const std::string& path, std::string_view name) {
    const gguf::File file = gguf::File::open(from).value();
    gguf::Writer writer;
    for (const auto& [key, value] : file.metadata()) writer.set(key, value);
    for (const gguf::Tensor& tensor : file.tensors()) {
        std::vector<std::uint64_t> shape = tensor.shape;
        if (tensor.name == name) shape.back() *= 2;
        EXPECT_TRUE(writer.add_tensor(tensor.name, tensor.type, shape).ok());
    }
    EXPECT_TRUE(writer.begin(path).ok());
    for (const gguf::Tensor& tensor : file.tensors()) {
        EXPECT_TRUE(writer.write_tensor_data(tensor.data).ok());
        if (tensor.name != name) continue;
        EXPECT_TRUE(writer.write_tensor_data(tensor.data).ok());
    }
    EXPECT_TRUE(writer.commit().ok());
    return path;
}

TEST_F(Factors, are_taken_into_the_head_of_a_drafter) {
    convert::DraftHeadOptions options;
    options.draft = options.target = write(tiny_, folder_ / "apart.gguf", false);
    options.output = folder_ / "apart_head.gguf";
    options.type = Type::f32;
    ASSERT_TRUE(convert::add_mtp_head(options).ok());
    options.draft = options.target = write(tiny_, folder_ / "folded.gguf", true);
    options.output = folder_ / "folded_head.gguf";
    ASSERT_TRUE(convert::add_mtp_head(options).ok());
    const std::string name = "blk.4.nextn.shared_head_head.weight";
    const auto want = data_of(options.output, name);
    EXPECT_GT(want.size(), 0U);
    EXPECT_EQ(data_of(folder_ / "apart_head.gguf", name), want);

    options.target = folder_ / "apart.gguf";
    options.type = Type::nvfp4;  // as the head's own
    const Status refused = convert::add_mtp_head(options);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("'output.weight' has a factor"), std::string::npos)
        << refused.error().message;
}

TEST_F(Factors, of_a_layer_that_are_too_many_are_refused_where_a_head_is_added) {
    const std::string name = "blk.4.attn_q.scale";
    const std::string apart = write(tiny_, folder_ / "apart.gguf", false);
    convert::DraftHeadOptions options;
    options.target = tiny_.path();
    options.draft = doubled(apart, folder_ / "wrong.gguf", name);
    options.output = folder_ / "head.gguf";
    const Status refused = convert::add_mtp_head(options);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find(name + "' has 2 values"), std::string::npos)
        << refused.error().message;
}

}  // namespace
}  // namespace strata::test
