#include "cli/prompt_options.h"

#include "base/text.h"
#include "cli/input.h"

namespace strata::cli {

void add_prompt_options(Options& options, PromptOptions* to) {
    options.text("-p,--prompt", "TEXT", &to->text, "The prompt");
    options.text("-f,--file", "FILE", &to->file, "Read the prompt from a file; -: standard input");
    options.list("--tokens", "token id", &to->tokens,
                 "The prompt as token ids: 1,2,3, or @FILE for a file that holds such a list");
    options.flag("--special", &to->special,
                 "Let control tokens that the text spells out be control tokens");
    options.check([to]() -> Status {
        const int given =
            int{to->text.has_value()} + int{to->file.has_value()} + int{to->tokens.has_value()};
        if (to->text && to->text->empty()) {
            return STRATA_ERROR("-p is given an empty prompt: at least one token is wanted");
        }
        if (given == 1) return Ok{};
        return STRATA_ERROR(given == 0 ? "a prompt is missing" : "more than one prompt is given",
                            ": one of -p, -f and --tokens is wanted");
    });
}

Result<std::vector<std::int32_t>> prompt_tokens(const PromptOptions& options,
                                                const Engine& engine) {
    if (options.tokens) return *options.tokens;
    std::string text;
    if (options.text) {
        text = *options.text;
    } else {
        STRATA_ASSIGN(text, read_text(*options.file));
    }
    if (text.empty()) return STRATA_ERROR("the prompt is empty, and at least one token is wanted");
    return options.special ? engine.tokenize_with_special(text) : engine.tokenize(text);
}

}  // namespace strata::cli
