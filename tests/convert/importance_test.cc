// Quantizing with importance: the columns that matter more are rounded more finely.
#include "convert/importance.h"

#include <gtest/gtest.h>

#include "convert/quantize.h"
#include "gguf/writer.h"
#include "tests/convert/convert_case.h"
#include "tests/support/random.h"

namespace strata::test {
namespace {

using quant::Type;

struct Entry {
    std::string name;
    std::uint64_t width;
    std::vector<float> squares;
    std::vector<float> counts;
};

void write_entries(const std::string& path, const std::vector<Entry>& entries) {
    gguf::Writer writer;
    writer.set("general.type", gguf::Value::string("imatrix"));
    for (const Entry& entry : entries) {
        const std::uint64_t squares[] = {entry.width, entry.squares.size() / entry.width};
        const std::uint64_t counts[] = {1, entry.counts.size()};
        ASSERT_TRUE(writer.add_tensor(entry.name + ".in_sum2", Type::f32, squares).ok());
        ASSERT_TRUE(writer.add_tensor(entry.name + ".counts", Type::f32, counts).ok());
    }
    ASSERT_TRUE(writer.begin(path).ok());
    for (const Entry& entry : entries) {
        ASSERT_TRUE(writer.write_tensor_data(std::as_bytes(std::span(entry.squares))).ok());
        ASSERT_TRUE(writer.write_tensor_data(std::as_bytes(std::span(entry.counts))).ok());
    }
    ASSERT_TRUE(writer.commit().ok());
}

const std::string kHead = "output.weight";
const std::string kExperts = "blk.0.ffn_down_exps.weight";

class Importance : public ::testing::Test {
  protected:
    Importance() : made_(HfCheckpoint::random(block_config())), in_(std::move(made_.file())) {
        for (const std::string& name : {kHead, kExperts}) {
            const gguf::Tensor& tensor = *in_.find_tensor(name);
            Entry entry{name, tensor.shape[0], {}, {}};
            Random random(name);
            for (std::uint64_t part = 0; part < tensor.dimension(2); ++part) {
                // Few columns matter; the last expert met no input.
                const bool unused = part > 0 && part + 1 == tensor.dimension(2);
                entry.counts.push_back(unused ? 0.0f : 8.0f);
                for (const float u : random.floats(static_cast<std::int64_t>(entry.width), 0, 1)) {
                    entry.squares.push_back(unused ? 0.0f : 8 * (u < 0.2f ? 10.0f : 0.01f));
                }
            }
            entries_.push_back(entry);
        }
    }

    convert::QuantizeOptions options(const std::string& importance) const {
        convert::QuantizeOptions options;
        options.input = made_.output();
        options.output = folder_ / (importance.empty() ? "plain.gguf" : "weighted.gguf");
        options.types.type = Type::q4_0;
        options.importance = importance;
        return options;
    }
    gguf::File quantized(const std::string& importance) const {
        const convert::QuantizeOptions to = options(importance);
        const Status status = convert::quantize(to);
        EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
        return std::move(gguf::File::open(to.output)).value();
    }
    std::string error(const std::vector<Entry>& entries) const {
        write_entries(folder_ / "bad", entries);
        const Status status = convert::quantize(options(folder_ / "bad"));
        EXPECT_FALSE(status.ok());
        return status.ok() ? "" : status.error().message;
    }
    // Of one part: the sum over rows and columns of the column's mean square times squared error.
    double weighted_error(const gguf::File& file, const Entry& entry, std::uint64_t part) const {
        const auto right = values_of(*in_.find_tensor(entry.name));
        const auto found = values_of(*file.find_tensor(entry.name));
        const std::size_t each = right.size() / entry.counts.size();
        double sum = 0;
        for (std::size_t i = part * each; i < (part + 1) * each; ++i) {
            const double away = static_cast<double>(found[i]) - static_cast<double>(right[i]);
            sum += entry.squares[part * entry.width + i % entry.width] * away * away;
        }
        return sum;
    }

    TempDir folder_;
    ConvertCase made_;
    gguf::File in_;
    std::vector<Entry> entries_;
};

TEST_F(Importance, lowers_the_weighted_error_of_every_matrix_that_it_speaks_of) {
    write_entries(folder_ / "importance", entries_);
    const gguf::File plain = quantized("");
    const gguf::File weighted = quantized(folder_ / "importance");
    for (const Entry& entry : entries_) {
        for (std::size_t part = 0; part < entry.counts.size(); ++part) {
            if (entry.counts[part] == 0) continue;
            EXPECT_LT(weighted_error(weighted, entry, part),
                      0.95 * weighted_error(plain, entry, part))
                << entry.name << " " << part;
        }
    }
    EXPECT_EQ(weighted.find("quantize.imatrix.entries_count")->as_int(), 2);
}

TEST_F(Importance, leaves_what_it_does_not_speak_of_as_it_is_without) {
    write_entries(folder_ / "importance", entries_);
    const gguf::File plain = quantized("");
    const gguf::File weighted = quantized(folder_ / "importance");
    for (const gguf::Tensor& tensor : plain.tensors()) {
        if (tensor.name == kHead || tensor.name == kExperts) continue;
        EXPECT_TRUE(std::ranges::equal(tensor.data, weighted.find_tensor(tensor.name)->data));
    }
    // The expert that met no input.
    const auto& experts = *plain.find_tensor(kExperts);
    const std::size_t each = experts.data.size() / experts.dimension(2);
    EXPECT_TRUE(std::ranges::equal(experts.data.last(each),
                                   weighted.find_tensor(kExperts)->data.last(each)));
}

TEST_F(Importance, of_another_model_or_malformed_is_refused) {
    Entry other = entries_[0];
    other.width /= 2;
    other.counts = {8, 8};
    EXPECT_TRUE(says(error({other}), "is of another model: tensor 'output.weight'"));
    Entry negative = entries_[0];
    negative.squares[3] = -1;
    EXPECT_TRUE(says(error({negative}), "-1, wanted 0 or more"));
    Entry counts = entries_[0];
    counts.counts.push_back(1);
    EXPECT_TRUE(says(error({counts}), "2 values, wanted 1"));
    EXPECT_TRUE(says(error({}), "holds no importance"));
    EXPECT_TRUE(says(convert::quantize(options(folder_ / "none")).error().message, "none"));
}

}  // namespace
}  // namespace strata::test
