// What agents tell each other, as JSON objects in frames of the control plane (comm/control).
//
// They are read only from a peer that has proven the token, and still held to their limits: a field that is missing, of
// another type or out of range is a CommError of one line, after which the connection is given up. An order carries no
// command: an agent starts the `lockstep` it is, with the arguments it was given, and takes from the wire only what
// changes from epoch to epoch (numbers, and a layout in the letters that a layout has).
//
//   from an agent to its leader   join, beat, ended, stop
//   from the leader               welcome, refused, beat, start, ask_to_end, kill, over
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launch/epoch.h"
#include "launch/leader.h"

namespace lockstep {

enum class AgentMessageKind : std::uint8_t {
  join,
  beat,
  ended,
  stop,
  welcome,
  refused,
  start,
  ask_to_end,
  kill,
  over,
};

struct AgentMessage {
  AgentMessageKind kind = AgentMessageKind::beat;
  int agent = -1;                  // join: who it is
  AgentFacts facts = {};           // join
  std::string version = {};        // join: of the program
  std::uint64_t beat = 0;          // beat: a number, which the leader returns
  std::uint32_t epoch = 0;         // ended
  std::vector<RankEnd> ends = {};  // ended
  EpochOrder order = {};           // start
  Epoch plan = {};                 // welcome, beat of a leader: what would be inherited
  std::set<int> agents = {};       // likewise
  bool led = false;                // refused: whoever refuses has a leader, or can become it
  std::set<int> ranks = {};        // kill: these alone; none: all
  std::string text = {};           // refused, over: why
  int code = 0;                    // over
};

std::string to_text(const AgentMessage& message);
AgentMessage parse_agent_message(std::string_view text);

// Whether it is made of what layouts are made of, and begins as one does.
bool is_layout_text(std::string_view text);
// Whether it is made of what names and addresses of hosts are made of.
bool is_host_text(std::string_view text);

// What is wrong with an order for an agent with that number of slots; "" where it can be obeyed.
std::string why_not(const EpochOrder& order, int slots);

}  // namespace lockstep
