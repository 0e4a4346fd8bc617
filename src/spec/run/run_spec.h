// A training run as plain data: what a run file says, every default filled in.
//
// It comes from run_toml.h, which checks each value's range and calls validate(). One made by hand has passed no check.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spec/layout/layout_spec.h"
#include "spec/model/model_spec.h"
#include "spec/model/precision.h"
#include "spec/run/learning_rate_spec.h"
#include "spec/run/lora_spec.h"
#include "spec/run/memory_spec.h"
#include "spec/run/optimizer_spec.h"
#include "spec/run/source_spec.h"
#include "spec/run/sparsity_spec.h"
#include "spec/run/sync_spec.h"
#include "spec/run/tuning_spec.h"

namespace lockstep {

// The vocabulary of text read as bytes: 256 values and the end of a document.
inline constexpr std::int64_t kByteVocabulary = 257;

// A Markov chain over token ids, made from a seed: its entropy is known, so is the loss that a good model reaches.
// Contexts (vocabulary to the power of order) are held in tables, which bounds the vocabulary.
inline constexpr std::int64_t kMaxSyntheticVocabulary = 4096;
inline constexpr std::int64_t kMaxSyntheticPairs = 256;  // the largest vocabulary of order 2
struct SyntheticSpec {
  std::int64_t vocabulary = 64;
  std::int64_t order = 2;      // 1 or 2: tokens that the next one depends on
  std::int64_t branching = 4;  // tokens that can follow, at most the vocabulary
  std::uint64_t seed = 0;      // below 2^63, the largest that TOML can say
  bool operator==(const SyntheticSpec&) const = default;
};

// What a sample is made of (docs/data.md, "Documents").
enum class Documents {
  stream,   // a window of the data, in which a token sees all tokens before it
  masked,   // a window, in which it sees those of its own document
  packed,   // pieces of documents that fill it best, each by itself; documents longer than a sample are split
  nosplit,  // whole documents, each by itself, and padding; longer ones are truncated
  varlen,   // documents in their order, each by itself, and no padding: samples have as many tokens as these have
};
inline constexpr std::array kDocuments{Documents::stream, Documents::masked, Documents::packed, Documents::nosplit,
                                       Documents::varlen};
constexpr std::string_view name_of(Documents documents) {
  constexpr std::string_view kNames[] = {"stream", "masked", "packed", "nosplit", "varlen"};
  return kNames[static_cast<int>(documents)];
}

// Exactly one: text, tokens, synthetic, example or a mixture of sources.
struct DataSpec {
  std::vector<std::string> text;  // files and folders, absolute (run_toml.h says from where)
  std::string tokens;             // a token file, of this program or another (data/open_tokens.h), absolute
  TokenType token_type = TokenType::named;
  std::vector<SourceSpec> sources = {};  // of a mixture, in the order of their names
  WeighBy weigh_by = WeighBy::tokens;
  std::string tokenizer;  // of the text: a folder with a tokenizer.json, absolute; empty: bytes
  std::optional<SyntheticSpec> synthetic;
  bool example = false;    // the text built into the program
  std::int64_t seq = 256;  // T
  Documents documents = Documents::stream;
  double eval_share = 0.05;  // the last share of the samples is for evaluation; 0 = none
  bool operator==(const DataSpec&) const = default;
};

// What to do after a step whose gradient norm is not finite. Neither updates anything in that step.
enum class BadValues { stop, skip };

constexpr std::string_view name_of(BadValues what) { return what == BadValues::stop ? "stop" : "skip"; }

// What to do with a step whose loss is far above those before it: nothing, or go back to the newest saved state and
// leave its batch out (train/loss_spikes.h).
enum class LossSpikes { ignore, rewind };

constexpr std::string_view name_of(LossSpikes what) { return what == LossSpikes::ignore ? "ignore" : "rewind"; }

inline constexpr std::int64_t kMostRewinds = 1000;

// Where an asynchronous save copies a GPU's state while a step waits: into room on the GPU, from which it goes to the
// host beside the steps that follow, or to the host at once. `automatic`: on the GPU where that has room.
enum class SnapshotPlace { automatic, host, device };

constexpr std::string_view name_of(SnapshotPlace place) {
  constexpr std::string_view kNames[] = {"auto", "host", "device"};
  return kNames[static_cast<int>(place)];
}

// Measured when a run begins (train/copying.h).
inline constexpr std::int64_t kCopyAuto = -1;

struct TrainSpec {
  std::int64_t steps = 100;
  std::int64_t global_batch = 8;  // samples per step, over all ranks and micro-batches
  std::int64_t eval_every = 0;    // steps; 0 = never
  std::int64_t eval_batches = 8;  // global batches per evaluation
  std::int64_t save_every = 0;    // steps; 0 = only at the end
  std::int64_t keep = 2;          // checkpoints kept, the newest
  std::uint64_t seed = 0;         // below 2^63
  BadValues bad_values = BadValues::stop;
  LossSpikes loss_spikes = LossSpikes::ignore;
  double spike_z = 8;             // standard deviations above the mean of the losses before that are a spike
  std::int64_t most_rewinds = 8;  // of a run; spikes after them are ignored
  bool async_save = true;         // write checkpoints beside the training
  SnapshotPlace snapshot = SnapshotPlace::automatic;
  bool deterministic = true;            // false: the fastest kernels, also those whose last bits differ from run to run
  bool save_last = true;                // save where the run ends; false leaves that to save_every
  std::int64_t copy_every = kCopyAuto;  // steps between copies of the state in memory, under launch; 0 = none
  std::string backup = {};              // a second folder for checkpoints, absolute; empty: none
  double save_retry = 30;  // seconds that a run which ends keeps trying to save what the disk does not take
  bool operator==(const TrainSpec&) const = default;
};

// What a run computes on.
enum class RunDevice { cpu, cuda };
inline constexpr std::array kRunDevices{RunDevice::cpu, RunDevice::cuda};
constexpr std::string_view name_of(RunDevice device) { return device == RunDevice::cpu ? "cpu" : "cuda"; }

// Which clocks are compared, so that times of several ranks are on one clock: every rank's, one of each host, or none.
enum class ClockScope { global, local, off };
inline constexpr std::array kClockScopes{ClockScope::global, ClockScope::local, ClockScope::off};
constexpr std::string_view name_of(ClockScope scope) {
  constexpr std::string_view kNames[] = {"global", "local", "off"};
  return kNames[static_cast<int>(scope)];
}

// Where parameter servers are: on what the run computes on, or on the host, under workers on GPUs.
enum class ServerDevice { same, cpu };
inline constexpr std::array kServerDevices{ServerDevice::same, ServerDevice::cpu};
constexpr std::string_view name_of(ServerDevice device) { return device == ServerDevice::same ? "same" : "cpu"; }

struct RunSettings {
  std::string out = "runs/run";  // the run folder, relative to where the program runs; run_toml.h says its default
  RunDevice device = RunDevice::cpu;
  ServerDevice server_device = ServerDevice::same;
  std::int64_t threads = 0;  // per rank; 0 = its share of the cores
  bool pin = true;           // ranks of one host keep to cores of their own
  double deadline = 30;      // seconds that a rank waits for another before it says so and ends the run
  std::int64_t trace = 0;    // steps, from the second on, whose timeline is written to trace.json; 0 = none
  std::int64_t record_every =
      1;  // steps of which each rank records where its time went; 0 = none (telemetry/rank_records.h)
  ClockScope clock = ClockScope::local;
  double clock_error = 100e-6;  // seconds: clocks are compared again before they may be further from the mean
  std::int64_t check_state =
      0;                     // steps between comparisons of state that ranks hold alike (train/state_check.h); 0: off
  bool tensorboard = true;   // write event files for TensorBoard (telemetry/tensorboard.h)
  bool autotune = false;     // time several algorithms for each product (on a GPU) and keep the fastest in `tuning`
  std::string machine = {};  // one whose file predicts the step (spec/machine/machine_spec.h); empty: none
  // Beside SIGINT and SIGTERM, which always do: signals that save and end the run (spec/run/stop_signals.h).
  std::vector<std::string> stop_signals = {"SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU"};
  bool operator==(const RunSettings&) const = default;
};

struct RunSpec {
  ModelSpec model;           // whole, wherever it came from
  std::string model_preset;  // the preset it started from; empty: none
  std::string model_hf;      // the Hugging Face folder that the weights start from; empty: not from one
  std::string model_from;    // the run or checkpoint that the weights start from; both empty: random weights
  DataSpec data;
  TrainSpec train;
  OptimizerSpec optimizer;
  LearningRateSpec schedule;
  PrecisionSpec precision;
  LayoutSpec layout;
  MemorySpec memory;
  SyncSpec sync;
  SparsitySpec sparsity;
  LoraSpec lora;
  RunSettings run;
  TuningSpec tuning;  // what was chosen by timing in the run that this one repeats or resumes
  bool operator==(const RunSpec&) const = default;

  // Whether the run learns something else than one rank would (docs/design.md, rule 2).
  bool changes_numbers() const { return sync.changes_numbers() || layout.unflushed(); }
};

// UserError of code usage when values that are good by themselves contradict each other: no source of data or several,
// samples longer than the model's positions, a batch that micro-batches do not divide, a vocabulary that the data does
// not fit, a warm-up longer than the run, … `place` names the source of a key for the message ("run.toml:12"). Each
// value is taken to be within its own range, and the model to have passed its validate().
using KeyPlace = std::function<std::string(std::string_view section, std::string_view key)>;
void validate(const RunSpec& spec, const KeyPlace& place);

}  // namespace lockstep
