# SPDX-License-Identifier: Apache-2.0
# bash completion of ckptfs. All knowledge is in `ckptfs complete`; this puts
# together what bash splits at ':' and '=', and takes off again what of it
# bash keeps on the line. Files are bash's own where nothing is offered.

_ckptfs()
{
	local line words=() word="" i at=0 piece
	# the words up to the cursor; COMP_WORDBREAKS has cut them at : and =
	for ((i = 1; i <= COMP_CWORD; i++)); do
		piece=${COMP_WORDS[i]}
		line=${COMP_LINE:at}
		# glued to the one before? then nothing but it lies between
		if ((i > 1)) && [[ ${line} == "$piece"* ]]; then
			words[${#words[@]} - 1]+=$piece
		else
			words+=("$piece")
			line=${line#*[[:space:]]}
			at=$((${#COMP_LINE} - ${#line}))
			while [[ ${COMP_LINE:at:1} == [[:space:]] ]]; do
				((at++))
			done
		fi
		at=$((at + ${#piece}))
	done
	word=${words[${#words[@]} - 1]}
	# an open quote is not part of a name
	[[ $word == [\"\']* ]] && word=${word:1}
	words[${#words[@]} - 1]=$word

	COMPREPLY=()
	while IFS= read -r line; do
		COMPREPLY+=("$line")
	done < <("${COMP_WORDS[0]}" complete "${words[@]}" 2>/dev/null)

	# bash replaces only what follows the last break
	local head=""
	if [[ $COMP_WORDBREAKS == *:* && $word == *:* ]]; then
		head=${word%"${word##*:}"}
	elif [[ $COMP_WORDBREAKS == *=* && $word == *=* ]]; then
		head=${word%"${word##*=}"}
	fi
	for i in "${!COMPREPLY[@]}"; do
		COMPREPLY[i]=${COMPREPLY[i]#"$head"}
	done
	# a folder or an option that wants a value goes on
	if ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} == *[/=] ]]; then
		compopt -o nospace 2>/dev/null
	fi
}

complete -o default -o bashdefault -F _ckptfs ckptfs
