#include "convert/inspect.h"

#include <gtest/gtest.h>

#include <numeric>

#include "gguf/writer.h"
#include "tests/convert/convert_case.h"

namespace strata::test {
namespace {

using nlohmann::json;

convert::Inspection inspected(const std::string& path) {
    return std::move(convert::inspect(path)).value();
}

// A file with the given keys and F32 vectors of three values.
void write_other(const std::string& path, const std::vector<std::string>& names,
                 gguf::Value extra) {
    gguf::Writer writer;
    writer.set("general.architecture", gguf::Value::string("llama"));
    writer.set("extra", std::move(extra));
    const std::uint64_t shape[] = {3};
    for (const std::string& name : names) {
        ASSERT_TRUE(writer.add_tensor(name, quant::Type::f32, shape).ok());
    }
    ASSERT_TRUE(writer.begin(path).ok());
    const std::vector<std::byte> zeros(12);
    for (std::size_t i = 0; i < names.size(); ++i) {
        ASSERT_TRUE(writer.write_tensor_data(zeros).ok());
    }
    ASSERT_TRUE(writer.commit().ok());
}

TEST(Inspect, classes_hold_every_tensor_once) {
    const ConvertCase made(HfCheckpoint::random(small_config()));
    made.file();
    const convert::Inspection inspection = inspected(made.output());
    std::uint64_t tensors = 0;
    std::uint64_t bytes = 0;
    for (const auto& c : inspection.classes) {
        EXPECT_NE(c.name, "other");
        tensors += c.tensors;
        bytes += c.bytes;
    }
    std::uint64_t data = 0;
    for (const auto& tensor : inspection.file.tensors()) data += tensor.data.size();
    EXPECT_EQ(tensors, inspection.file.tensors().size());
    EXPECT_EQ(bytes, data);
    const auto find = [&](const std::string& name) {
        for (const auto& c : inspection.classes) {
            if (c.name == name) return c;
        }
        return convert::ClassSize{};
    };
    EXPECT_EQ(find("routed experts").elements, 4U * 4 * 3 * 9 * 24);
    EXPECT_EQ(find("n-gram table").bytes, 4U * 118 * 5);
    EXPECT_EQ(find("head").types, std::vector<std::string>{"F32"});
    EXPECT_GT(find("MTP layer").elements, 4U * 3 * 9 * 24);
}

TEST(Inspect, what_a_model_lacks_is_listed) {
    const ConvertCase made(HfCheckpoint::random(small_config()));
    const gguf::File file = made.file();
    EXPECT_EQ(inspected(made.output()).lacks, std::vector<std::string>{});
    const TempDir other;
    gguf::Writer writer;
    for (const auto& [key, value] : file.metadata()) writer.set(key, value);
    std::vector<const gguf::Tensor*> kept;
    for (const gguf::Tensor& tensor : file.tensors()) {
        if (tensor.name == "blk.2.ssm_out.weight") continue;
        ASSERT_TRUE(writer.add_tensor(tensor.name, tensor.type, tensor.shape).ok());
        kept.push_back(&tensor);
    }
    ASSERT_TRUE(writer.begin(other / "a.gguf").ok());
    for (const gguf::Tensor* tensor : kept) {
        ASSERT_TRUE(writer.write_tensor_data(tensor->data).ok());
    }
    ASSERT_TRUE(writer.commit().ok());
    const convert::Inspection inspection = inspected(other / "a.gguf");
    ASSERT_TRUE(inspection.lacks);
    ASSERT_EQ(inspection.lacks->size(), 1U);
    EXPECT_TRUE(says(inspection.lacks->at(0), "blk.2.ssm_out.weight"));
    EXPECT_TRUE(says(convert::inspection_text(inspection, false), "blk.2.ssm_out.weight"));
    EXPECT_TRUE(says(convert::inspection_text(inspection, false), "without a tokenizer"));
}

TEST(Inspect, a_configuration_that_does_not_read_is_what_the_file_lacks) {
    const TempDir directory;
    for (const auto& [architecture, key] :
         {std::pair("qwen4exp", "qwen4exp.block_count"), std::pair("dflash", "selector_top_k")}) {
        gguf::Writer writer;
        writer.set("general.architecture", gguf::Value::string(architecture));
        ASSERT_TRUE(writer.begin(directory / "a.gguf").ok());
        ASSERT_TRUE(writer.commit().ok());
        const convert::Inspection inspection = inspected(directory / "a.gguf");
        ASSERT_TRUE(inspection.lacks);
        EXPECT_TRUE(says(inspection.lacks->at(0), key));
    }
}

TEST(Inspect, files_of_other_architectures_are_shown_without_a_list_of_what_lacks) {
    const TempDir directory;
    write_other(directory / "a.gguf", {"token_embd.weight", "blk.0.attn_q.weight", "strange"},
                gguf::Value::of(std::nanf("")));
    const convert::Inspection inspection = inspected(directory / "a.gguf");
    EXPECT_FALSE(inspection.lacks);
    EXPECT_TRUE(
        says(convert::inspection_text(inspection, true), "not known for this architecture"));
    const json out = json::parse(convert::inspection_json(inspection, true));
    EXPECT_TRUE(out["lacks"].is_null());
    EXPECT_EQ(out["architecture"], "llama");
    EXPECT_EQ(out["tensors"].size(), 3U);
    EXPECT_EQ(out["classes"].size(), 3U);
    EXPECT_EQ(out["metadata"]["extra"]["value"], "nan");
}

TEST(Inspect, json_gives_values_with_their_types_and_shortens_long_lists) {
    const TempDir directory;
    std::vector<std::uint64_t> many(65);
    std::iota(many.begin(), many.end(), std::uint64_t{1} << 60);
    write_other(directory / "a.gguf", {"a"}, gguf::Value::array(many));
    const convert::Inspection inspection = inspected(directory / "a.gguf");
    const json out = json::parse(convert::inspection_json(inspection, false));
    const json& extra = out["metadata"]["extra"];
    EXPECT_EQ(extra["type"], "array of u64");
    EXPECT_EQ(extra["count"], 65);
    EXPECT_EQ(extra["first"][1], (std::uint64_t{1} << 60) + 1);
    EXPECT_EQ(extra["first"].size(), 8U);
    EXPECT_FALSE(extra.contains("value"));
    EXPECT_FALSE(out.contains("tensors"));
    many.pop_back();
    write_other(directory / "a.gguf", {"a"}, gguf::Value::array(many));
    const json whole =
        json::parse(convert::inspection_json(inspected(directory / "a.gguf"), false));
    EXPECT_EQ(whole["metadata"]["extra"]["value"].size(), 64U);
}

TEST(Inspect, bytes_that_are_no_text_and_control_characters_do_no_harm) {
    const TempDir directory;
    write_other(directory / "a.gguf", {"a\x1b[2J", "\xff\xfe"},
                gguf::Value::string("\x1b[31m\xff"));
    const convert::Inspection inspection = inspected(directory / "a.gguf");
    EXPECT_EQ(convert::inspection_text(inspection, true).find('\x1b'), std::string::npos);
    const json out = json::parse(convert::inspection_json(inspection, true), nullptr, false);
    EXPECT_FALSE(out.is_discarded());
}

TEST(Inspect, a_file_that_is_not_gguf_is_an_error) {
    const TempDir directory;
    write_file(directory / "a.gguf", "no");
    EXPECT_FALSE(convert::inspect(directory / "a.gguf").ok());
    EXPECT_FALSE(convert::inspect(directory / "none.gguf").ok());
}

}  // namespace
}  // namespace strata::test
