// A simulator of a step: how long it takes, given the times of what ranks compute and send, before it runs.
//
// A rank goes through a list of pieces in order: it computes, starts a message, or waits for one. A message can be
// moved when all its ranks have started it and those before it in its channel are done. Ranks are threads that move
// their messages themselves (comm/threads/rendezvous.h): a rank that waits works at the message it waits for, or, where
// that cannot be moved yet, at the oldest that can. So a message is hidden where some rank has time for it, and never
// where all compute. A message too small to have seconds is moved by the last rank to come.
//
// Ranks that compute have `threads` threads each, ranks that move messages one. Where there are more threads than
// cores, they queue for them as an operating system schedules them: a thread that has had its turn goes to the end of
// the queue. A rank that waits and has nothing to move takes no core. So ranks that share cores and meet often wait for
// each other's turns, though every core is busy.
//
// Ranks may have simulated links (comm/delayed.h). A rank's link carries what the rank starts, one message after the
// other, beside whatever the rank does; a rank that waits sleeps until its link has carried the message.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

namespace lockstep {

struct ForecastPiece {
  enum class Kind : std::uint8_t { compute, start, wait, mark };
  Kind kind = Kind::mark;
  double seconds = 0;  // that it computes, undisturbed
  int message = -1;    // that it starts or waits for
  double link = 0;     // seconds that the rank's link carries what it starts
};

struct ForecastMessage {
  int ranks = 2;         // that must start it
  int channel = 0;       // those of one are moved one after the other, in the order of the list
  double seconds = 0;    // that one rank would work to move it
  double latency = 0;    // until a rank that waits knows of it
  int axis = 0;          // of the mesh, that its ranks are along: waits are told apart by it
  bool one_way = false;  // from one rank to another: it arrives when the sender's link has carried it
};

struct ForecastWorld {
  std::vector<std::vector<ForecastPiece>> ranks;
  std::vector<ForecastMessage> messages = {};
  int cores = 1;
  int threads = 1;     // of a rank
  double turn = 3e-3;  // seconds on a core while others queue: about Linux's
};

// When a rank reached each of its marks, and how long it had waited until then.
struct ForecastRank {
  struct Mark {
    double at = 0, waited = 0;
    std::array<double, 4> by_axis{};  // of what it waited
  };
  std::vector<Mark> marks;
};

// By rank. ProgramError where ranks wait for each other for ever.
std::vector<ForecastRank> forecast(const ForecastWorld& world);

}  // namespace lockstep
