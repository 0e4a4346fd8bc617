// What was chosen by timing, kept so that it is not chosen again: the table [tuning] of a run file, and the tables of
// configs/tuning/ that are built into the program.
//
//   [tuning]
//   gpu = "NVIDIA H200"          # that it was timed on, as its driver calls it
//   library = "cuBLASLt 130200"  # whose algorithms they are
//   products = ["FORM -> ALGORITHM", …]
//
// kernels/product_tuning.h defines form and algorithm; here they are text. The table acts on that GPU with that library
// only. Failure: UserError of code usage, one line with its place and a remedy.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class TomlTable;
class TomlWriter;

struct TuningSpec {
  std::string gpu;
  std::string library;
  std::map<std::string, std::string> products;  // form -> algorithm
  bool operator==(const TuningSpec&) const = default;
};

// Of a table of a larger document (run_toml.h). An absent table is an empty spec, and the empty spec is not written.
TuningSpec read_tuning(const TomlTable& table);
void write_tuning(const TuningSpec& tuning, TomlWriter& writer);

// [tuning] of a text, whatever else is in it.
TuningSpec parse_tuning_toml(std::string_view text, const std::string& where);
std::string to_toml(const TuningSpec& tuning);  // one product a line

// The program's own table for a GPU and a library; the empty spec when it has none.
TuningSpec built_in_tuning(const std::string& gpu, const std::string& library);

}  // namespace lockstep
