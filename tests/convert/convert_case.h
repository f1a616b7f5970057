// Converting a test's checkpoint and reading the result.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "convert/convert.h"
#include "gguf/reader.h"
#include "tests/convert/hf_checkpoint.h"
#include "tests/support/temp_dir.h"

namespace strata::test {

// A directory with a checkpoint in `in/` that converts to `out.gguf`.
class ConvertCase {
  public:
    ConvertCase() = default;
    explicit ConvertCase(const HfCheckpoint& checkpoint, int files = 1) {
        checkpoint.write(input(), files);
    }

    std::string input() const { return directory_ / "in"; }
    std::string output() const { return directory_ / "out.gguf"; }
    convert::ConvertOptions options() const {
        convert::ConvertOptions options;
        options.directory = input();
        options.output = output();
        options.types.type = quant::Type::f32;
        options.name = "case";
        return options;
    }
    Status run() const { return convert_checkpoint(options()); }
    // The sentence of a conversion that must fail and leave nothing behind.
    std::string error(const convert::ConvertOptions& options) const {
        const Status status = convert_checkpoint(options);
        EXPECT_FALSE(status.ok());
        EXPECT_EQ(directory_.names(), std::vector<std::string>{"in"});
        return status.ok() ? "" : status.error().message;
    }
    std::string error() const { return error(options()); }
    // The file that a conversion with these options gives, which must succeed.
    gguf::File file(const convert::ConvertOptions& options) const {
        const Status status = convert_checkpoint(options);
        EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
        return std::move(gguf::File::open(output())).value();
    }
    gguf::File file() const { return file(options()); }
    std::string bytes() const {
        file();
        return read_file(output());
    }

  private:
    TempDir directory_;
};

inline std::vector<float> values_of(const gguf::Tensor& tensor) {
    std::vector<float> values(tensor.elements());
    quant::info(tensor.type)
        .decode(tensor.data.data(), values.data(), static_cast<std::int64_t>(values.size()));
    return values;
}

inline testing::AssertionResult says(const std::string& sentence, const std::string& part) {
    if (sentence.find(part) != std::string::npos) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "'" << sentence << "' lacks '" << part << "'";
}

}  // namespace strata::test
