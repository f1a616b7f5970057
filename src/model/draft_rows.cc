#include "model/draft_rows.h"

#include <cstring>

#include "base/text.h"

namespace strata::model {

Status check_draft_rows(const gguf::File& file, const gguf::Tensor* head, const gguf::Tensor* map,
                        std::int64_t hidden, std::int64_t vocabulary) {
    if (map != nullptr && head == nullptr) {
        return STRATA_ERROR(quote(file.path()), ": tensor ", quote(map->name),
                            " maps the rows of a head of its own, and there is none");
    }
    if (head == nullptr) return Ok{};
    const auto all = static_cast<std::uint64_t>(vocabulary);
    const std::uint64_t rows = map == nullptr ? all : map->elements();
    if (map == nullptr && head->dimension(1) != all) {
        return STRATA_ERROR(quote(file.path()), ": tensor ", quote(head->name), " has ",
                            head->dimension(1), " rows, wanted the vocabulary of ", vocabulary,
                            ", or a tensor 'd2t' that says which token each row is");
    }
    const auto width = static_cast<std::uint64_t>(hidden);
    if (head->dimension(0) != width || head->dimension(1) != rows ||
        head->elements() != width * rows) {
        return STRATA_ERROR(quote(file.path()), ": tensor ", quote(head->name), " has rows of ",
                            head->dimension(0), " values, ", head->dimension(1),
                            " of them, wanted ", rows, " of ", width);
    }
    if (map != nullptr && (map->type != quant::Type::i64 || map->shape.size() != 1)) {
        return STRATA_ERROR(quote(file.path()), ": tensor ", quote(map->name), " is of type ",
                            quant::info(map->type).name, " and has ", map->shape.size(),
                            " dimensions, wanted a list of I64");
    }
    const quant::TypeInfo& type = quant::info(head->type);
    if (type.decode != nullptr) return Ok{};
    return STRATA_ERROR(quote(file.path()), ": tensor ", quote(head->name), " is of type ",
                        type.name, ", wanted a floating-point or quantized type");
}

Result<std::vector<std::int64_t>> read_draft_rows(const gguf::File& file, const gguf::Tensor& map,
                                                  std::int64_t vocabulary, std::int64_t least) {
    std::vector<std::int64_t> tokens(map.elements());
    std::memcpy(tokens.data(), map.data.data(), tokens.size() * sizeof(tokens[0]));
    std::int64_t before = -1;
    for (const std::int64_t token : tokens) {
        if (token <= before || token >= vocabulary) {
            return STRATA_ERROR(quote(file.path()), ": tensor ", quote(map.name), " holds ", token,
                                " after ", before,
                                ", wanted ascending tokens below the vocabulary "
                                "of ",
                                vocabulary);
        }
        before = token;
    }
    if (static_cast<std::int64_t>(tokens.size()) >= least) return tokens;
    return STRATA_ERROR(quote(file.path()), ": tensor ", quote(map.name), " has ", tokens.size(),
                        " tokens, wanted at least ", least, " to choose from");
}

}  // namespace strata::model
