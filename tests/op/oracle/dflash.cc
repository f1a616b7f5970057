#include "tests/op/oracle/dflash.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "tests/op/oracle/draw.h"

namespace strata::test {
namespace {

// Each head of x normed and turned.
Row norm_and_turn(const DflashDraft& draft, const Row& x, const std::vector<float>& gain,
                  std::int64_t position) {
    const op::DflashShape& shape = draft.sizes.shape;
    Row y;
    for (std::size_t at = 0; at < x.size(); at += shape.head_dim) {
        Row head = rms_norm(part(x, at, shape.head_dim), gain, draft.epsilon);
        for (int i = 0; i < shape.rotary_pairs; ++i) {
            const double angle = static_cast<double>(position) * draft.inverse_frequency[i];
            const double a = head[i];
            const double b = head[i + shape.rotary_pairs];
            head[i] = a * std::cos(angle) - b * std::sin(angle);
            head[i + shape.rotary_pairs] = b * std::cos(angle) + a * std::sin(angle);
        }
        append(y, head);
    }
    return y;
}

Row sum_of(Row a, const Row& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
}

// C(side, x) with the coefficients of `delta`.
Rows convolve(const DflashDraft& draft, const DflashConvParts& conv, const Rows& delta, int side,
              const Rows& x) {
    const DflashSizes& sizes = draft.sizes;
    const std::int64_t groups = sizes.width / sizes.group;
    Rows y(x.size(), Row(sizes.width, 0.0));
    for (std::size_t i = 0; i < x.size(); ++i) {
        for (int t = 0; t < sizes.taps && t <= static_cast<int>(i); ++t) {
            for (std::int64_t ch = 0; ch < sizes.width; ++ch) {
                const std::int64_t tap = side * sizes.taps + t;
                const double base = conv.base[tap * sizes.width + ch];
                const double moved = delta[i][tap * groups + ch / sizes.group];
                y[i][ch] += (base + moved) * x[i - t][ch];
            }
        }
    }
    return y;
}

// h + post for a sublayer f.
template <typename Sublayer>
Rows around(const DflashDraft& draft, const Rows& h, const std::vector<float>& norm,
            const DflashConvParts& conv, const Sublayer& f) {
    Rows a;
    Rows delta;
    for (const Row& row : h) {
        a.push_back(rms_norm(row, norm, draft.epsilon));
        delta.push_back(product(conv.projection, a.back()));
    }
    const Rows post = convolve(draft, conv, delta, 1, f(convolve(draft, conv, delta, 0, a)));
    Rows y;
    for (std::size_t i = 0; i < h.size(); ++i) y.push_back(sum_of(h[i], post[i]));
    return y;
}

Row attend_row(const DflashDraft& draft, const Row& query, const std::vector<DflashCell>& seen) {
    const op::DflashShape& shape = draft.sizes.shape;
    const std::int64_t d = shape.head_dim;
    Row all;
    for (int h = 0; h < shape.heads; ++h) {
        const std::int64_t g = h / (shape.heads / shape.kv_heads);
        const Row q = part(query, h * d, d);
        Row scores;
        for (const DflashCell& cell : seen) {
            scores.push_back(dot(q, part(cell.key, g * d, d)) / std::sqrt(static_cast<double>(d)));
        }
        const double largest = *std::max_element(scores.begin(), scores.end());
        double sum = 0;
        for (double& s : scores) sum += (s = std::exp(s - largest));
        Row o(d, 0.0);
        for (std::size_t c = 0; c < seen.size(); ++c) {
            for (std::int64_t i = 0; i < d; ++i) {
                o[i] += scores[c] / sum * seen[c].value[g * d + i];
            }
        }
        append(all, o);
    }
    return all;
}

Rows attend(const DflashDraft& draft, const DflashParts& layer, const Rows& u, std::int64_t first,
            const std::vector<DflashCell>& cells) {
    std::vector<DflashCell> own;
    for (std::size_t j = 0; j < u.size(); ++j) {
        const std::int64_t p = first + static_cast<std::int64_t>(j);
        own.push_back({p, norm_and_turn(draft, product(layer.key, u[j]), layer.key_norm, p),
                       product(layer.value, u[j])});
    }
    Rows y;
    for (std::size_t i = 0; i < u.size(); ++i) {
        const std::int64_t p = first + static_cast<std::int64_t>(i);
        std::vector<DflashCell> seen;
        const auto near = [&](std::int64_t distance) {
            return layer.window == 0 || distance < layer.window;
        };
        for (const DflashCell& cell : cells) {
            const bool held = cell.position >= 0 && cell.position < first;
            if (held && near(p - cell.position)) seen.push_back(cell);
        }
        for (const DflashCell& cell : own) {
            if (near(std::abs(p - cell.position))) seen.push_back(cell);
        }
        const Row query = norm_and_turn(draft, product(layer.query, u[i]), layer.query_norm, p);
        y.push_back(product(layer.out, attend_row(draft, query, seen)));
    }
    return y;
}

DflashConvParts random_conv(Random& random, Types& types, const DflashSizes& sizes) {
    const std::int64_t rows = 2 * sizes.taps * (sizes.width / sizes.group);
    return {random.floats(2 * sizes.taps * sizes.width, -1, 1),
            random_weight(random, types.next(), rows, sizes.width)};
}

DflashParts random_layer(Random& random, Types& types, const DflashSizes& sizes,
                         std::int64_t window) {
    const op::DflashShape& shape = sizes.shape;
    const std::int64_t query = std::int64_t{shape.heads} * shape.head_dim;
    const std::int64_t kv = std::int64_t{shape.kv_heads} * shape.head_dim;
    DflashParts layer;
    layer.window = window;
    layer.attention_norm = random.floats(sizes.width, 0.5, 1.5);
    layer.attention_conv = random_conv(random, types, sizes);
    layer.query = random_weight(random, types.next(), query, sizes.width);
    layer.key = random_weight(random, types.next(), kv, sizes.width);
    layer.value = random_weight(random, types.next(), kv, sizes.width);
    layer.out = random_weight(random, types.next(), sizes.width, query);
    layer.query_norm = random.floats(shape.head_dim, 0.5, 1.5);
    layer.key_norm = random.floats(shape.head_dim, 0.5, 1.5);
    layer.feed_norm = random.floats(sizes.width, 0.5, 1.5);
    layer.feed_conv = random_conv(random, types, sizes);
    layer.gate = random_weight(random, types.next(), sizes.feed, sizes.width);
    layer.up = random_weight(random, types.next(), sizes.feed, sizes.width);
    layer.down = random_weight(random, types.next(), sizes.width, sizes.feed);
    return layer;
}

// Indices of `values` by size, equal ones in order.
std::vector<std::size_t> ranked(const Row& values) {
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return values[a] > values[b]; });
    return order;
}

// The smallest difference between one of the first n ranked values and the one after it.
double margin_of(const Row& values, const std::vector<std::size_t>& order, std::size_t n) {
    double margin = 1;
    for (std::size_t i = 0; i < n && i + 1 < order.size(); ++i) {
        margin = std::min(margin, values[order[i]] - values[order[i + 1]]);
    }
    return margin;
}

Row decoded_row(const TestWeight& table, std::int64_t row) {
    return Row(table.row(row), table.row(row) + table.cols);
}

}  // namespace

DflashDraft random_dflash(Random& random, Types types, const DflashSizes& sizes) {
    DflashDraft draft;
    draft.sizes = sizes;
    draft.epsilon = random_epsilon(random);
    for (int i = 0; i < sizes.shape.rotary_pairs; ++i) {
        draft.inverse_frequency.push_back(std::pow(1e4, -1.0 * i / sizes.shape.rotary_pairs));
    }
    draft.fuse = random_weight(random, types.next(), sizes.width, sizes.features);
    draft.fuse_norm = random.floats(sizes.width, 0.5, 1.5);
    draft.table = random_weight(random, types.next(), sizes.vocabulary, sizes.width);
    for (const std::int64_t window : sizes.windows) {
        draft.layers.push_back(random_layer(random, types, sizes, window));
    }
    draft.norm = random.floats(sizes.width, 0.5, 1.5);
    return draft;
}

std::vector<DflashCell> dflash_cells_oracle(const DflashDraft& draft, const DflashParts& layer,
                                            const Rows& features, std::int64_t first) {
    std::vector<DflashCell> cells;
    for (std::size_t t = 0; t < features.size(); ++t) {
        Row x = features[t];
        for (double& value : x) value = std::isfinite(value) ? value : 0;
        const Row c = rms_norm(product(draft.fuse, x), draft.fuse_norm, draft.epsilon);
        const std::int64_t p = first + static_cast<std::int64_t>(t);
        cells.push_back({p, norm_and_turn(draft, product(layer.key, c), layer.key_norm, p),
                         product(layer.value, c)});
    }
    return cells;
}

Rows dflash_block_oracle(const DflashDraft& draft, const std::vector<std::int32_t>& tokens,
                         std::int64_t first, const std::vector<std::vector<DflashCell>>& cells) {
    Rows h;
    for (const std::int32_t token : tokens) h.push_back(decoded_row(draft.table, token));
    for (std::size_t l = 0; l < draft.layers.size(); ++l) {
        const DflashParts& layer = draft.layers[l];
        h = around(draft, h, layer.attention_norm, layer.attention_conv,
                   [&](const Rows& u) { return attend(draft, layer, u, first, cells[l]); });
        h = around(draft, h, layer.feed_norm, layer.feed_conv, [&](const Rows& u) {
            Rows y;
            for (const Row& row : u) {
                const Row gate = silu(product(layer.gate, row));
                y.push_back(product(layer.down, multiply(gate, product(layer.up, row))));
            }
            return y;
        });
    }
    for (Row& row : h) row = rms_norm(row, draft.norm, draft.epsilon);
    return h;
}

DflashSelector random_selector(Random& random, Types types, std::int64_t width, std::int64_t rank,
                               std::int64_t vocabulary, int candidates) {
    DflashSelector selector;
    selector.projection = random_weight(random, types.next(), rank, width);
    selector.predecessor =
        make_weight(types.next(), vocabulary, rank, random.floats(vocabulary * rank, -1, 1));
    selector.successor =
        make_weight(types.next(), vocabulary, rank, random.floats(vocabulary * rank, -1, 1));
    selector.candidates = candidates;
    return selector;
}

namespace {

// Which candidate of the walk's next row is drawn, by the oracle of draws: of the candidates by
// token, in F32, which is near enough where nothing is ranked closely.
std::size_t drawn(const DflashRule& told, DflashWalk& walk, const Row& scores) {
    const auto i = static_cast<std::int64_t>(walk.path.size());
    const std::size_t begin = walk.candidates.size() - scores.size();
    std::map<std::int64_t, std::size_t> by_token;
    for (std::size_t c = 0; c < scores.size(); ++c) by_token[walk.candidates[begin + c]] = c;
    std::vector<std::int64_t> tokens;
    std::vector<float> logits;
    for (const auto& [token, c] : by_token) {
        tokens.push_back(token);
        logits.push_back(static_cast<float>(scores[c]));
    }
    op::DrawRule rule = told.rule;
    for (std::int64_t j = 0; j < i; ++j) {
        rule.joins[j] = walk.path[static_cast<std::size_t>(j)];
        if (rule.leaves[j] < -1) {
            rule.leaves[j] = walk.path[static_cast<std::size_t>(-2 - rule.leaves[j])];
        }
    }
    const DrawnRow row = draw_oracle(logits, tokens, rule, told.penalized, i);
    if (rule.temperature == 0) {
        return by_token.at(tokens[static_cast<std::size_t>(row.largest)]);
    }
    // No filter's end is near, nor a second one near the first.
    const auto kept = [&](std::size_t r) { return !std::isnan(row.scores[r]); };
    std::vector<double> by_score;
    for (std::size_t r = 0; r < tokens.size(); ++r) {
        if (kept(r)) by_score.push_back(row.scores[r]);
        walk.margin = std::min(walk.margin, std::abs(row.scaled[r] - rule.lowest));
        if (rule.top_p < 1) {
            walk.margin = std::min(walk.margin, std::abs(row.before[r] - rule.top_p));
        }
    }
    if (rule.top_k > 0) {
        const auto k = static_cast<std::size_t>(rule.top_k);
        walk.margin = std::min(walk.margin, margin_of(row.scaled, ranked(row.scaled), k));
    }
    std::sort(by_score.rbegin(), by_score.rend());
    if (by_score.size() > 1) walk.margin = std::min(walk.margin, by_score[0] - by_score[1]);
    std::size_t best = 0;
    while (!kept(best) || row.scores[best] != by_score[0]) ++best;
    return by_token.at(tokens[best]);
}

}  // namespace

DflashWalk dflash_walk_oracle(const DflashSelector& selector, const Rows& hidden,
                              const Rows& logits, std::int32_t anchor, const DflashRule* rule) {
    const auto finite = [](const Row& row) {
        return std::all_of(row.begin(), row.end(), [](double v) { return std::isfinite(v); });
    };
    const auto k = static_cast<std::size_t>(selector.candidates);
    DflashWalk walk;
    walk.confidence.emplace_back();
    std::int32_t before = anchor;
    for (std::size_t i = 0; i < logits.size() && finite(logits[i]); ++i, ++walk.rows) {
        const auto order = ranked(logits[i]);
        walk.margin = std::min(walk.margin, margin_of(logits[i], order, k));
        const Row transition = multiply(decoded_row(selector.predecessor, before),
                                        product(selector.projection, hidden[i]));
        Row scores;
        for (std::size_t c = 0; c < k; ++c) {
            const auto row = static_cast<std::int64_t>(order[c]);
            const std::int64_t token =
                selector.token_of_row.empty() ? row : selector.token_of_row[order[c]];
            walk.candidates.push_back(static_cast<std::int32_t>(token));
            scores.push_back(logits[i][order[c]] +
                             dot(transition, decoded_row(selector.successor, token)));
        }
        const auto best = ranked(scores);
        walk.margin = std::min(walk.margin, margin_of(scores, best, 1));
        double sum = 0;
        for (const double score : scores) sum += std::exp(score - scores[best[0]]);
        const std::size_t pick = rule == nullptr ? best[0] : drawn(*rule, walk, scores);
        before = walk.candidates[i * k + pick];
        walk.path.push_back(before);
        walk.confidence[0].push_back(std::exp(scores[pick] - scores[best[0]]) / sum);
        walk.scores.push_back(scores);
    }
    return walk;
}

}  // namespace strata::test
