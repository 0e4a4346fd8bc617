// A training run as TOML: the run file that a person writes, and the resolved one that a run folder keeps.
//
//   [model]                   # one of: preset, hf, from, or the fields of model_toml.h
//   preset = "llama-5m"       # of presets.h; single fields beside it change it (head_width and kv_heads follow width
//                             # and heads where they did in the preset)
//   hf = "FOLDER"             # config.json's model, and its weights to start from; beside it only dropout and
//                             # attention_dropout may differ from config.json
//   from = "RUN"              # the model and the weights of a checkpoint, training anew: a run folder (its newest
//                             # whole checkpoint), its checkpoints or one of them; beside it the same two may differ
//   [data]                    # one of: text (with a tokenizer, or as bytes), tokens, example, synthetic, sources of a
//                             # mixture (spec/run/source_toml.h)
//   text = ["FILE", "FOLDER"] # or one string; read as bytes, a vocabulary of 257
//   tokens = "FILE"           # with token_type = "u16" or "u32" where it is ids without a header
//   example = true            # the text built into the program
//   seq = 256
//   documents = "stream"
//   eval_share = 0.05
//   [data.synthetic]
//   vocabulary = 64
//   order = 2
//   branching = 4
//   seed = 0
//   [train]                   # the fields of TrainSpec
//   [optim]
//   name = "adamw"            # with betas = [0.9, 0.95] and eps, or "sgd" with momentum
//   lr = 1e-3
//   weight_decay = 0.1
//   clip = 1.0
//   schedule = "cosine"       # constant, linear, cosine, or wsd, which has decay = STEPS; with warmup, final
//   [layout]
//   dp = 1                    # ranks, each with its part of the batch
//   micro = 1                 # layout_spec.h: also dp_kind, overlap, bucket, uneven, reduce. docs/design.md's other
//                             # keys are known, and refused unless they change nothing
//   [precision]
//   compute = "fp32"          # fp64, fp32, bf16, fp16, fp8
//   gradients = "fp32"        # or bf16, beside compute = "bf16"
//   moments = "fp32"          # or bf16
//   master = "fp32"           # or bf16, beside compute = "bf16"; none of the three in fp64 runs
//   loss_scale = "dynamic"    # of fp16 runs; or "none", or a power of two
//   loss_scale_growth = 2000  # of a dynamic one
//   [memory]
//   recompute = "none"        # "elementwise"; "projections", "full": with recompute_blocks, … (spec/run/memory_spec.h)
//   [sync]
//   kind = "full"             # what changes the numbers on purpose (spec/run/sync_spec.h)
//   [run]
//   out = "runs/NAME"         # NAME is the run file's name without .toml
//   device = "cpu"            # or "cuda"
//   threads = 0
//   pin = true
//   deadline = 30
//   record_every = 1
//   tensorboard = true
//   clock = "local"           # "global", or "off", which has no clock_error
//   clock_error = 1e-4
//   autotune = false          # of "cuda"
//   machine = "NAME"          # of machine_spec.h, or a file: what a step's predicted time is scored by
//   [tuning]                  # tuning_spec.h; a run with autotune writes it into its resolved run file
//
// Every key may be left out but a model and a source of data; the defaults are those of run_spec.h. A key that would do
// nothing (momentum under adamw, decay without wsd) is refused.
//
// Paths of data and models are read from the run file's folder, those in `sets` from where the program runs; a RunSpec
// holds them absolute. `out` is relative to where the program runs.
//
// `sets`: "section.key=value" from the command line, over what the file says; the last of several for one key counts.
// The value is read as TOML, else as a string. Such a choice replaces the file's: model.preset, model.hf and model.from
// replace its whole [model]; data.text, data.tokens and data.example=true its source; optim.name and optim.schedule the
// keys that belong to another.
//
// Failure: UserError of code usage, one line "where:line: problem; remedy", or "--set x.y=z: problem; remedy"; an
// unknown name comes with the nearest known one. A bad config.json is hf_config.h's error. Text of more than 64 KiB is
// refused. Nothing but config.json is opened, and, through the caller, the checkpoint that `from` names: whether data
// exists is found out when it is read.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "spec/run/run_spec.h"

namespace lockstep {

// The model of the checkpoint that the run is resumed from, its own folder being `out` as the file says it; else of the
// one that `from` names; nothing where that is empty. This room opens no checkpoints. Asked where the file says `from`,
// or an `hf` folder that is gone; not where it states every field, as a resolved run file does.
using ModelOfCheckpoint =
    std::function<std::optional<ModelSpec>(const std::filesystem::path& from, const std::string& out)>;

RunSpec read_run_file(const std::filesystem::path& file, std::span<const std::string> sets = {},
                      const ModelOfCheckpoint& model_of = {});
RunSpec parse_run_toml(std::string_view text, const std::string& where, const std::filesystem::path& base_folder,
                       std::span<const std::string> sets = {}, const ModelOfCheckpoint& model_of = {});

// All that a command line may say over a run file. `layout` is the whole of [layout], in place of the file's; a setting
// changes one key of either. `ranks` is the number of all ranks, from which dp follows (spec/layout/layout_spec.h,
// spread_over): refused where the other axes do not divide it, or where the command line also says another dp.
struct RunChanges {
  std::span<const std::string> sets = {};
  std::optional<std::string> layout = {};
  std::int64_t ranks = 0;  // 0: those of the layout
  ModelOfCheckpoint model_of = {};
};
RunSpec read_run(const std::filesystem::path& file, const RunChanges& changes);
RunSpec parse_run(std::string_view text, const std::string& where, const std::filesystem::path& base_folder,
                  const RunChanges& changes);

// The built-in example: configs/runs/example.toml as it was when the program was built. Parsed with where = "example",
// it writes to runs/example.
std::string example_run_toml();

// The resolved run file: every value that acts, the model's fields in full. Read from any folder it gives the same spec
// to the last bit, even when the folder of `hf` or `from` is gone. (Of a spec put together by hand: if validate()
// passes it, its paths are absolute, and values that do nothing under its choices have their defaults.)
std::string to_toml(const RunSpec& spec);

}  // namespace lockstep
