// The arguments that name a run: RUN.toml or the built-in example, settings over it, and its layout.
//
// They mean the same in every command: --layout replaces the whole layout of the run file; --set layout.KEY changes one
// key of either; --ranks is the number of all ranks, and dp becomes what pp, cp and tp leave of them.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "spec/run/run_toml.h"

namespace CLI {
class App;
}

namespace lockstep {

struct RunArguments {
  std::string file;
  std::string text;  // in place of the file's: the run file that a checkpoint holds
  std::vector<std::string> sets;
  std::string resumed = {};  // a run or checkpoint that is resumed and whose model the run has; "auto": its own folder

  bool takes_auto = false;  // the command chooses a number for memory.gathered = "auto"; others refuse that

  void add_to(CLI::App& command);
  // The run, of another layout or number of ranks where the command has been given one. The built-in example's warm-up
  // is made to fit a run that was made shorter than it, with a line on standard error.
  RunSpec read(const std::optional<std::string>& layout = {}, std::int64_t ranks = 0) const;
  // What is the same under any layout: the run file's own, and settings of one, are left out.
  RunSpec read_for_any_layout() const;
  std::vector<std::string> layout_sets() const;  // those that change a key of the layout
};

// UserError (usage): of a command that runs many layouts side by side.
[[noreturn]] void refuse_compression();
// Of a layout whose schedule changes what is learned, where results are compared.
void refuse_unflushed(const LayoutSpec& layout);

struct LayoutArguments {
  std::optional<std::string> layout;
  int ranks = 0;  // 0: as the run file says

  void add_to(CLI::App& command, int most_ranks, const std::string& usual_ranks);
  RunSpec read(const RunArguments& arguments) const;
  // Whether the command line says how many ranks there are, by --ranks or by a dp.
  bool say_ranks(const RunArguments& arguments) const;
};

}  // namespace lockstep
