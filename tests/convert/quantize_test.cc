// A model in other number formats: the same model, but for the values' rounding.
#include "convert/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "base/text.h"
#include "gguf/writer.h"
#include "tests/convert/convert_case.h"

namespace strata::test {
namespace {

using quant::Type;

// A converted model of F32 beside the quantized one.
class Quantize : public ::testing::Test {
  protected:
    Quantize() : made_(HfCheckpoint::random(block_config())) { made_.file(); }

    convert::QuantizeOptions options(Type type) const {
        convert::QuantizeOptions options;
        options.input = made_.output();
        options.output = folder_ / "out.gguf";
        options.types.type = type;
        return options;
    }
    static gguf::File file(const convert::QuantizeOptions& options) {
        const Status status = convert::quantize(options);
        EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
        return std::move(gguf::File::open(options.output)).value();
    }
    std::string error(const convert::QuantizeOptions& options) const {
        const auto before = folder_.names();
        const Status status = convert::quantize(options);
        EXPECT_FALSE(status.ok());
        EXPECT_EQ(folder_.names(), before);
        return status.ok() ? "" : status.error().message;
    }

    // The input's tensors, some of them replaced, written as `parts` files of one set.
    std::string rewrite(int parts, const std::string& replaced = "",
                        std::vector<float> values = {}) const {
        const gguf::File in = std::move(gguf::File::open(made_.output())).value();
        const std::size_t count = in.tensors().size();
        std::string first;
        for (int part = 0; part < parts; ++part) {
            gguf::Writer writer;
            if (part == 0) {
                for (const auto& [key, value] : in.metadata()) writer.set(key, value);
            }
            if (parts > 1) {
                writer.set("split.no", gguf::Value::of(static_cast<std::uint16_t>(part)));
                writer.set("split.count", gguf::Value::of(static_cast<std::uint16_t>(parts)));
                writer.set("split.tensors.count",
                           gguf::Value::of(static_cast<std::int32_t>(count)));
            }
            const auto own = in.tensors().subspan(count * static_cast<std::size_t>(part) /
                                                  static_cast<std::size_t>(parts));
            const auto mine = own.first(count * static_cast<std::size_t>(part + 1) /
                                            static_cast<std::size_t>(parts) -
                                        (count - own.size()));
            for (const auto& tensor : mine) {
                EXPECT_TRUE(writer.add_tensor(tensor.name, tensor.type, tensor.shape).ok());
            }
            const std::string path =
                folder_ /
                (parts == 1 ? "in.gguf" : concat("in-0000", part + 1, "-of-0000", parts, ".gguf"));
            EXPECT_TRUE(writer.begin(path).ok());
            for (const auto& tensor : mine) {
                const auto bytes = tensor.name == replaced
                                       ? std::as_bytes(std::span<const float>(values))
                                       : tensor.data;
                EXPECT_TRUE(writer.write_tensor_data(bytes).ok());
            }
            EXPECT_TRUE(writer.commit().ok());
            if (part == 0) first = path;
        }
        return first;
    }

    TempDir folder_;
    ConvertCase made_;
};

TEST_F(Quantize, is_what_converting_to_those_types_gives) {
    convert::QuantizeOptions quantized = options(Type::q8_0);
    quantized.types.experts_gate = Type::q4_0;
    quantized.types.head = Type::f16;
    const gguf::File got = file(quantized);
    const ConvertCase direct(HfCheckpoint::random(block_config()));
    convert::ConvertOptions converted = direct.options();
    converted.types = quantized.types;
    const gguf::File want = direct.file(converted);
    ASSERT_EQ(got.tensors().size(), want.tensors().size());
    for (const gguf::Tensor& tensor : want.tensors()) {
        const gguf::Tensor* same = got.find_tensor(tensor.name);
        ASSERT_NE(same, nullptr) << tensor.name;
        EXPECT_EQ(same->type, tensor.type) << tensor.name;
        EXPECT_EQ(same->shape, tensor.shape) << tensor.name;
        EXPECT_TRUE(std::ranges::equal(same->data, tensor.data)) << tensor.name;
    }
}

TEST_F(Quantize, metadata_is_kept_and_says_the_new_type) {
    const gguf::File in = std::move(gguf::File::open(made_.output())).value();
    const gguf::File out = file(options(Type::q4_0));
    EXPECT_EQ(out.find("general.file_type")->as_uint(), 2U);
    EXPECT_EQ(out.find("general.quantization_version")->as_uint(), 2U);
    for (const auto& [key, value] : in.metadata()) {
        if (key == "general.file_type") continue;
        const gguf::Value* kept = out.find(key);
        ASSERT_NE(kept, nullptr) << key;
        EXPECT_EQ(kept->payload(), value.payload()) << key;
        EXPECT_EQ(kept->type_text(), value.type_text()) << key;
    }
}

TEST_F(Quantize, what_has_its_type_already_keeps_its_bytes) {
    convert::QuantizeOptions first = options(Type::q4_0);
    file(first);
    convert::QuantizeOptions again = first;
    again.input = first.output;
    again.output = folder_ / "again.gguf";
    file(again);
    EXPECT_EQ(read_file(again.output), read_file(first.output));
}

TEST_F(Quantize, threads_change_no_byte) {
    convert::QuantizeOptions one = options(Type::q8_0);
    file(one);
    const std::string want = read_file(one.output);
    for (const int threads : {2, 3, 7}) {
        one.threads = threads;
        file(one);
        EXPECT_EQ(read_file(one.output), want) << threads;
    }
}

TEST_F(Quantize, a_split_set_becomes_one_file) {
    file(options(Type::q8_0));
    const std::string want = read_file(folder_ / "out.gguf");
    convert::QuantizeOptions split = options(Type::q8_0);
    split.input = rewrite(3);
    file(split);
    EXPECT_EQ(read_file(split.output), want);
}

TEST_F(Quantize, a_file_of_the_input_is_no_output) {
    convert::QuantizeOptions same = options(Type::q8_0);
    same.input = rewrite(2);
    const std::string second = folder_ / "in-00002-of-00002.gguf";
    const std::string before = read_file(second);
    std::filesystem::create_symlink(second, folder_ / "link");
    for (const std::string& output : {same.input, second, folder_ / "link", folder_ / "./link"}) {
        same.output = output;
        EXPECT_TRUE(says(error(same), "another name is wanted")) << output;
    }
    EXPECT_EQ(read_file(second), before);
}

TEST_F(Quantize, leaving_the_mtp_layer_out_is_what_converting_without_it_gives) {
    ConvertCase without(HfCheckpoint::random(block_config()));
    convert::ConvertOptions no_mtp = without.options();
    no_mtp.mtp = false;
    const gguf::File wanted = without.file(no_mtp);
    convert::QuantizeOptions kept = options(Type::q8_0);
    kept.keep = true;
    kept.mtp = false;
    const gguf::File found = file(kept);
    ASSERT_EQ(found.tensors().size(), wanted.tensors().size());
    for (std::size_t i = 0; i < found.tensors().size(); ++i) {
        EXPECT_EQ(found.tensors()[i].name, wanted.tensors()[i].name);
        EXPECT_EQ(found.tensors()[i].type, wanted.tensors()[i].type);
        EXPECT_TRUE(std::ranges::equal(found.tensors()[i].data, wanted.tensors()[i].data));
    }
    for (const auto& [key, value] : wanted.metadata()) {
        ASSERT_NE(found.find(key), nullptr) << key;
        EXPECT_EQ(found.find(key)->payload(), value.payload()) << key;
    }
    EXPECT_EQ(found.find("qwen4exp.nextn_predict_layers")->as_uint(), 0U);
}

TEST_F(Quantize, types_of_what_an_mtp_layer_has_not_are_refused_of_the_layer_alone) {
    convert::QuantizeOptions layer = options(Type::q8_0);
    layer.only_mtp = true;
    layer.types.dense = Type::q4_0;
    file(layer);
    using Field = std::optional<Type> convert::TypeChoice::*;
    for (const Field field : {&convert::TypeChoice::embedding, &convert::TypeChoice::head,
                              &convert::TypeChoice::table}) {
        convert::QuantizeOptions other = options(Type::q8_0);
        other.output = folder_ / "other.gguf";
        other.only_mtp = true;
        other.types.*field = Type::q4_0;
        EXPECT_NE(error(other).find(" was given (Q4_0), and an MTP layer alone has none"),
                  std::string::npos);
    }
}

TEST_F(Quantize, keeping_types_changes_only_what_is_named) {
    convert::QuantizeOptions kept = options(Type::q4_0);
    kept.keep = true;
    kept.types.head = Type::q8_0;
    const gguf::File in = std::move(gguf::File::open(made_.output())).value();
    const gguf::File out = file(kept);
    ASSERT_EQ(out.tensors().size(), in.tensors().size());
    for (const gguf::Tensor& tensor : in.tensors()) {
        const bool head = tensor.name == "output.weight";
        EXPECT_EQ(out.find_tensor(tensor.name)->type, head ? Type::q8_0 : tensor.type);
    }
    EXPECT_EQ(out.find("general.file_type")->payload(), in.find("general.file_type")->payload());
}

TEST_F(Quantize, a_width_that_the_block_does_not_divide_is_named) {
    convert::QuantizeOptions wide = options(Type::q8_0);
    wide.types.table = Type::q4_k;
    if (quant::info(Type::q4_k).encode == nullptr) return;
    const std::string sentence = error(wide);
    EXPECT_TRUE(says(sentence, "per_layer_token_embd.weight"));
    EXPECT_TRUE(says(sentence, "multiple of 256"));
}

TEST_F(Quantize, a_value_that_the_type_cannot_hold_is_named) {
    const gguf::File in = std::move(gguf::File::open(made_.output())).value();
    const gguf::Tensor* head = in.find_tensor("output.weight");
    std::vector<float> values(head->elements(), 0.5f);
    for (const float bad :
         {1e6f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        values.back() = bad;
        convert::QuantizeOptions to = options(Type::f16);
        to.input = rewrite(1, "output.weight", values);
        EXPECT_TRUE(says(error(to), concat("'", to.input, "': tensor 'output.weight'"))) << bad;
    }
}

TEST_F(Quantize, other_architectures_and_what_is_no_model_are_refused) {
    convert::QuantizeOptions other = options(Type::q8_0);
    other.input = folder_ / "other.gguf";
    gguf::Writer writer;
    writer.set("general.architecture", gguf::Value::string("llama"));
    ASSERT_TRUE(writer.begin(other.input).ok());
    ASSERT_TRUE(writer.commit().ok());
    EXPECT_TRUE(says(error(other), "llama"));
    other.input = folder_ / "none.gguf";
    EXPECT_TRUE(says(error(other), "none.gguf"));
}

TEST_F(Quantize, a_caller_that_wants_no_more_leaves_no_file) {
    convert::QuantizeOptions stopped = options(Type::q8_0);
    std::uint64_t last = 0;
    stopped.progress = [&](std::uint64_t done, std::uint64_t total) {
        EXPECT_GT(done, last);
        last = done;
        return done < total / 2;
    };
    EXPECT_TRUE(says(error(stopped), "interrupted"));
}

}  // namespace
}  // namespace strata::test
