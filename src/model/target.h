// The model that is served: steps on sequences, and the guesses of its own MTP layer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/device.h"
#include "gguf/reader.h"
#include "model/config.h"
#include "model/forward.h"
#include "model/row_reader.h"
#include "model/sequence.h"
#include "model/step_memory.h"
#include "model/weights.h"
#include "op/table.h"

namespace strata::model {

enum class LogitRows : std::uint8_t { none, last, all };

// What a device picks from a row of logits: the largest, or what op::Draw says.
enum class Picks : std::uint8_t { none, largest, draw };

// What it picked. Without a confidence the logits tell more.
struct RowPick {
    op::Picked largest;
    std::span<const op::Drawn> drawn;  // 1 + kDrawnMax of them, or none
};

// What op::Draw is told of a window.
struct Draws {
    op::DrawRule rule;
    std::vector<op::Penalized> penalized;  // at most kPenalizedMax; the rule has their number

    int filters() const {
        return (rule.top_k > 0 ? op::kFilterTopK : 0) | (rule.top_p < 1 ? op::kFilterTopP : 0);
    }
};

// How rows of the n-gram table are had.
struct NgramOptions {
    // Of rows read from the file and kept. 0: the table is mapped and read in place. Nothing: 0 for
    // tables of at most kNgramMappedBytes, else kNgramCacheBytes.
    std::optional<std::int64_t> cache_bytes = std::nullopt;
    ReadMethod method = ReadMethod::automatic;
};

// Tables up to this size stay in memory beside the weights of the models that have them.
inline constexpr std::int64_t kNgramMappedBytes = std::int64_t{4} << 30;
inline constexpr std::int64_t kNgramCacheBytes = std::int64_t{64} << 20;

// Bytes of rows of `file`'s n-gram table to keep, `asked` or the default; 0: the table is with the
// weights.
std::int64_t ngram_cache_bytes(const gguf::File& file, std::optional<std::int64_t> asked);

using LogitSink = std::function<Status(MatrixView<const float> rows)>;

// Rows [.., layers * D] in the device's memory, from row `at` on of which features are written: a
// window's, whether or not its rows are kept.
struct FeaturePlace {
    MatrixView<float> rows;
    std::int64_t at = 0;
};

struct StepRequest {
    std::span<const std::int32_t> tokens;  // at least 1, at most rows_max()
    // A window's rows can be kept in part; it has at most kWindowRowsMax of them.
    bool window = false;
    op::DeltaForm form = op::DeltaForm::recurrent;
    LogitRows logits = LogitRows::last;
    // Logits of a window may stay where a device picks from them: the result says what it picked.
    Picks picks = Picks::none;
    const Draws* draws = nullptr;  // for draws
    // Of a window of several rows of which all are picked from: where work is recorded, the device
    // counts how many rows the text takes in as far as it knows (op/accept.h), `ends` being tokens
    // that end it, of which it minds the first op::kEndTokensMax, and makes the next states those
    // after as many. The caller commits what it finds itself; where that is as many, all of it is
    // done. Of other steps it is ignored.
    bool accept = false;
    std::span<const std::int32_t> ends;
    // Takes the logits as they are made, some rows at a time; the result then has none. All rows
    // of a long chunk are more memory than its state. Its error is the step's.
    const LogitSink* logit_sink = nullptr;
    // Layers after which the mean of the streams is wanted.
    std::span<const std::int64_t> feature_layers;
    // Where those of a window go instead of to the host.
    FeaturePlace features_to;
    // The residual streams after the last layer are wanted.
    bool residual = false;
    bool chosen = false;  // which experts each row chose
};

// In host memory that belongs to the target and is valid until its next call.
struct StepResult {
    MatrixView<const float> logits;  // [0, 1 or T, V]
    // Instead of them where they stayed, one a row.
    std::span<const RowPick> picked;
    // [T, layers * D], the layers of a row one after another; no rows where they went to a place.
    MatrixView<const float> features;
    MatrixView<const float> residual;       // [0 or T, S*D]
    MatrixView<const std::int32_t> chosen;  // [layers * T, k]: row l * T + t is row t's in layer l
};

// One chain of the MTP layer.
struct MtpDraft {
    std::vector<std::int32_t> path;
    std::vector<float> confidence;  // softmax probability of each pick
    // [guesses, rows of the head that were read], where they are kept; as in StepResult.
    MatrixView<const float> logits;
    std::int64_t computed = 0;  // guesses, those after the chain's end included
    std::int64_t judged = 0;    // of them, those of the chain and one below the floor
};

// How a chain is drawn; without functions greedily and to its end.
struct MtpChoice {
    // The guess that logits of `tokens`, or of all below token_end where there are none, give after
    // the guesses of `chain`. Its error ends the chain.
    std::function<Result<std::int32_t>(std::span<const float> logits,
                                       std::span<const std::int32_t> tokens,
                                       std::span<const std::int32_t> chain)>
        pick;
    // The same from what a device drew; nothing where that does not tell, and `pick` is asked.
    std::function<Result<std::optional<std::int32_t>>(const RowPick& picked,
                                                      std::span<const std::int32_t> chain)>
        pick_of;
    // What op::Draw is told of the guess after these, for `pick_of`. Null, or without it: `pick` is
    // asked.
    std::function<const Draws*(std::span<const std::int32_t> chain)> draws;
    // Whether a further guess is wanted after these.
    std::function<bool(std::span<const std::int32_t> chain, std::span<const float> confidence)>
        go_on;
    // Only tokens below this are guessed, and the head's other rows are not read; 0: any token. A
    // layer with a head of its own takes no notice of it.
    std::int32_t token_end = 0;
    bool keep_logits = false;  // MtpDraft::logits is wanted
    // Of a chain that may end early and that none of `pick` draws: guesses that are computed before
    // the first of them is judged, and then the next ones, where work is recorded; elsewhere it is
    // one. It changes no guess.
    std::int64_t at_once = 1;
};

// Owns the file and the weights; sequences are the caller's. Calls are not concurrent.
class Target {
  public:
    // `device` and its `ops` outlive the target. `rows_max` bounds the rows of a step.
    // `mtp` is a file of the MTP layer alone, or of a model whose MTP layer is wanted.
    static Result<std::unique_ptr<Target>> load(gguf::File file, device::Device& device,
                                                const op::Table& ops, std::int64_t rows_max,
                                                const NgramOptions& ngram = {},
                                                std::optional<gguf::File> mtp = {});

    Target(const Target&) = delete;
    Target& operator=(const Target&) = delete;
    ~Target();

    const Config& config() const { return config_; }
    const gguf::File& file() const { return file_; }
    // Of the MTP layer, where it has one of its own.
    const gguf::File* mtp_file() const { return mtp_file_ ? &*mtp_file_ : nullptr; }
    // For a drafter that shares the embedding and the head.
    const Weights& weights() const { return weights_; }
    // Where the experts lie: between two calls they may be moved, in turn with its queue's work.
    Residency& residency() { return weights_.residency; }
    // Where its steps run, for a drafter whose work is to come in turn with them.
    device::Queue& queue() { return *queue_; }
    // Tells what a drafter records there from what another does.
    std::int64_t number_drafter() { return ++drafters_; }
    std::int64_t rows_max() const { return rows_max_; }

    Result<Sequence> make_sequence(const SequenceOptions& options);
    void reset(Sequence& sequence) { sequence.reset(*queue_); }
    // As Sequence's, after a mark of the files: a state is of one model's weights.
    std::string save(Sequence& sequence);
    Status restore(Sequence& sequence, std::string_view saved);
    // As Sequence's functions of these names.
    std::string save_moment(Sequence& sequence) {
        catch_up(sequence);
        return sequence.save_moment(*queue_);
    }
    std::string save_rows(Sequence& sequence, std::int64_t first) {
        catch_up(sequence);
        return sequence.save_rows(*queue_, first);
    }
    void restore_moment(Sequence& sequence, std::span<const std::int32_t> tokens,
                        std::string_view saved) {
        sequence.restore_moment(*queue_, tokens, saved);
    }
    void restore_rows(Sequence& sequence, std::int64_t first, std::int64_t last,
                      std::string_view saved) {
        sequence.restore_rows(*queue_, first, last, saved);
    }

    // Error: the device has failed, and every step will (device::Queue::status).
    Status status() const { return queue_->status(); }

    // Whether the n-gram table is read from its file instead of mapped.
    bool reads_ngram_rows() const { return ngram_reader_ != nullptr; }
    // Of the n-gram table's rows; all 0 where the table is mapped.
    RowCounters ngram_counters() const {
        return ngram_reader_ == nullptr ? RowCounters{} : ngram_reader_->counters();
    }

    // Runs rows after the committed ones. Errors, which leave the sequence as it was: a token
    // outside the vocabulary, too many rows, no room in the context, a row of the n-gram table that
    // cannot be read, an expert that lies elsewhere than in device memory.
    Result<StepResult> step(Sequence& sequence, const StepRequest& request);
    // Row `row` of the last step's logits, where they stayed: until the next step or draft. The
    // span is valid until the next call.
    std::span<const float> fetch_logits(std::int64_t row);
    // Keeps the first `rows` rows of the step; 0 <= rows <= T, and T if it was no window. With MTP
    // kept up to date the layer's cells whose next token has become known are run then, or where
    // the step was a window when they are needed.
    void commit(Sequence& sequence, std::int64_t rows);
    // The same for every step of a sequence: the cells are run then, and the sink takes their
    // logits as they are made, some rows at a time. Errors: an expert that lies elsewhere than in
    // device memory, and nothing is kept yet; the sink's, or the device's, and the sequence is then
    // no good.
    Status commit(Sequence& sequence, std::int64_t rows, const LogitSink& mtp_logits);
    // As device::Queue::observe.
    bool observe(device::InputObserver* observer) { return queue_->observe(observer); }
    void drop(Sequence& sequence) { sequence.drop(); }

    // A chain of `guesses` guesses after `anchor`, the token that will follow the committed
    // ones; it ends before the first guess whose confidence is below `confidence_min`. Changes
    // nothing that is committed. Errors: no committed token, a sequence without MTP, no room in the
    // context, an expert that lies elsewhere than in device memory.
    Result<MtpDraft> draft(Sequence& sequence, std::int32_t anchor, std::int64_t guesses,
                           float confidence_min, const MtpChoice& choice = {});

  private:
    Target(gguf::File file, device::Device& device, const op::Table& ops)
        : file_(std::move(file)), device_(&device), ops_(ops) {}

    const std::string& mark();
    Status open_ngram(std::int64_t cache, ReadMethod method, std::int64_t rows_max);
    Status bind_mtp();
    Status prepare(std::int64_t rows_max);
    void unpin();
    void grow(std::vector<float>& values, std::size_t size);
    Status check_step(const Sequence& sequence, const StepRequest& request) const;
    Status check_token(std::int32_t token) const;
    void upload_tokens(std::span<const std::int32_t> tokens);
    void upload_ngram_rows();
    void find_ngram_rows(const Sequence& sequence, std::span<const std::int32_t> tokens);
    Status bring_ngram_rows();
    Forward forward(const op::Table& ops, const Workspace& work, Forward::Start start);
    // Whether the streams after the last layer are wanted whole, or mixed for the head.
    static bool is_mixed(const Sequence& sequence, const StepRequest& request) {
        return request.logits != LogitRows::none || request.residual || sequence.options().mtp;
    }
    Status run(Sequence& sequence, const StepRequest& request);
    // `recorded`: no memory of the host takes part.
    Status run_layers(Sequence& sequence, Forward& pass, const StepRequest& request, bool recorded);
    // Where the features of all layers lie as StepResult has them, on their way to the host; empty:
    // they are more than fit.
    MatrixView<float> features_of(const StepRequest& request) const;
    void tell_pass(std::int64_t first, std::int64_t feature_row,
                   std::span<const std::int32_t> tokens, std::span<const std::int32_t> ends = {});
    bool is_recorded(const StepRequest& request) const;
    bool accepts(const StepRequest& request) const;
    void submit_accept(Sequence& sequence, const StepRequest& request);
    // What the device found.
    std::int64_t accepted(const StepRequest& request) const;
    Status run_recorded(Sequence& sequence, const StepRequest& request);
    void take_picks(std::int64_t rows);
    void submit_draw(MatrixView<const float> logits, VectorView<const std::int64_t> token_of_row,
                     int filters);
    void take_draws(std::int64_t rows);
    // What was drawn of each row, to drawn_.
    void take_drawn(std::int64_t rows);
    void tell_draws(const Draws& draws);
    void submit_step(Sequence& sequence, const StepRequest& request, std::int64_t bound);
    void commit_state(Sequence& sequence, std::int64_t rows);
    void take_feature(MatrixView<const float> mean, std::int64_t index, std::int64_t layers);
    // Layer `index` of those wanted, after it has run.
    void mean_feature(Forward& pass, const StepRequest& request, std::int64_t index, bool recorded);
    void take_residual(std::int64_t rows);
    void take_chosen(std::int64_t rows);
    // Hands the logits of rows from .. from+rows-1 of the pass's x to the sink.
    Status sink_logits(Forward& pass, std::int64_t from, std::int64_t rows, const op::Weight& head,
                       const LogitSink& sink);
    // Appends the logits of rows from .. from+rows-1 of the pass's x to `out`.
    void take_logits(Forward& pass, std::int64_t from, std::int64_t rows, const op::Weight& head,
                     std::vector<float>& out);
    // Which of its cells the MTP layer runs.
    struct MtpCells {
        std::int64_t first = 0;  // of the first one's position
        std::int64_t count = 0;
        std::int64_t from = 0;            // row of the residual buffer with its waiting row
        VectorView<std::int32_t> tokens;  // after each position; of none, those of a step
    };
    // Without a sink these cannot fail.
    Status submit_mtp_cells(Sequence& sequence, const op::Table& ops, const MtpCells& run,
                            Forward::Start start, const LogitSink* logits);
    Status run_mtp_cells(Sequence& sequence, const op::Table& ops, const MtpCells& run,
                         const LogitSink* logits);
    Status keep_mtp_rows(Sequence& sequence, std::int64_t rows, const LogitSink* logits);
    // Runs the cells whose residuals wait, all but the last.
    void catch_up(Sequence& sequence);
    Workspace shifted_residual(std::int64_t from, std::int64_t rows) const;

    // A chain of the MTP layer under way.
    struct MtpChain {
        AttentionLayerState state;
        Workspace work;
        std::int64_t first = 0;      // where its first guess stands
        const float* raw = nullptr;  // the index history that its own begins as
        MtpCells cells;              // that are run before it, of residuals that wait
        std::int32_t next = 0;       // the token that its next guess follows
        op::Weight head;
        bool drawn = false;  // by the caller, from logits
        bool told = false;   // or from what a device drew
        int filters = 0;     // of that
    };
    MtpChain make_chain(Sequence& sequence, std::int32_t anchor, const MtpChoice& choice);
    // What comes before the first guess.
    void submit_chain_start(Sequence& sequence, const MtpChain& chain, Forward::Start cells);
    // The next `count` guesses, each after the one before it, to picked_.
    void run_chain(Sequence& sequence, const MtpChain& chain, std::int64_t done,
                   std::int64_t count);
    void run_recorded_chain(Sequence& sequence, const MtpChain& chain, std::int64_t done,
                            std::int64_t count);
    void tell_chain(const Sequence& sequence, const MtpChain& chain, std::int64_t first);
    void submit_chain(const MtpChain& chain, Forward::Start start, std::int64_t count);
    // How many guesses of a chain are computed before they are looked at.
    std::int64_t guesses_at_once(float confidence_min, const MtpChoice& choice) const;
    // Tells the device of the next guess, where it is to draw it.
    void tell_guess(const MtpDraft& draft, MtpChain& chain, const MtpChoice& choice);
    // Takes guesses of picked_ into the draft; false: the chain ends.
    bool take_guesses(MtpDraft& draft, MtpChain& chain, std::int64_t guesses, float confidence_min,
                      const MtpChoice& choice);
    // Appends the logits of the guess that was computed last, of `rows` rows of the head, to
    // logits_.
    void take_guess_logits(std::int64_t rows);
    // Lets the choice draw the last guess. Error: that of its function.
    Status draw_guess(const MtpDraft& draft, const MtpChain& chain, const MtpChoice& choice);
    // From what was drawn; false: that does not tell.
    Result<bool> draw_told(const MtpDraft& draft, const MtpChoice& choice);

    gguf::File file_;
    std::optional<gguf::File> mtp_file_;
    device::Device* device_;
    op::Table ops_;
    std::unique_ptr<device::Queue> queue_;
    Config config_;
    Weights weights_;
    std::int64_t rows_max_ = 0;
    std::int64_t drafters_ = 0;
    std::string mark_;  // of the files, once it was wanted
    device::Buffer memory_;
    StepMemory at_;
    std::unique_ptr<RowReader> ngram_reader_;  // null: the table is mapped
    std::vector<std::int64_t> ngram_rows_;
    std::vector<std::byte> ngram_read_;  // the rows of a step, as stored
    std::vector<std::int64_t> key_;      // of recorded work
    std::vector<float> logits_;          // its memory, of a window's rows, is pinned
    std::span<std::byte> pinned_;
    std::vector<op::Picked> picked_;  // of the rows or guesses that were computed last
    op::Candidate best_;              // of the last guess that was drawn
    std::vector<op::Drawn> drawn_;    // [rows, 1 + kDrawnMax]
    std::vector<std::byte> told_;     // of draws
    std::vector<RowPick> row_picks_;
    std::int64_t logits_on_device_ = 0;  // rows of logits that fetch_logits can get
    std::vector<float> features_;
    std::vector<float> mean_;
    std::vector<float> residual_;
    std::vector<std::int32_t> chosen_;
};

}  // namespace strata::model
